//! Sees through the encodings in which a command can be hidden: base64 and hexadecimal digits.

/// Decodes base64, of either alphabet; line ends and a missing end do not count.
pub(super) fn base64(text: &str) -> Option<String> {
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for c in text.chars().filter(|c| !c.is_whitespace() && *c != '=') {
        let digit = match c {
            'A'..='Z' => u32::from(c) - u32::from('A'),
            'a'..='z' => u32::from(c) - u32::from('a') + 26,
            '0'..='9' => u32::from(c) - u32::from('0') + 52,
            '+' | '-' => 62,
            '/' | '_' => 63,
            _ => return None,
        };
        bits = (bits << 6) | digit;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from((bits >> count) & 0xff).ok()?);
        }
    }
    String::from_utf8(bytes).ok()
}

/// Decodes hexadecimal digits.
pub(super) fn hex(text: &str) -> Option<String> {
    let digits: Vec<u32> =
        text.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16)).collect::<Option<_>>()?;
    let bytes = digits.chunks(2).map(|pair| u8::try_from(pair.iter().fold(0, |n, d| n * 16 + d)).ok());
    String::from_utf8(bytes.collect::<Option<_>>()?).ok()
}

/// Texts that are hidden in this one.
pub(super) fn hidden(text: &str) -> Vec<String> {
    const SHORTEST: usize = 12;
    let parts = text.split(|c: char| !c.is_ascii_alphanumeric() && !"+/=_-".contains(c));
    let found = parts.filter(|part| part.len() >= SHORTEST).flat_map(|part| [base64(part), hex(part)]);
    found.flatten().filter(|text| !text.contains(|c: char| c.is_control() && !c.is_whitespace())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_texts_are_found() {
        assert_eq!(base64("Z2l0IHB1c2ggLWYK").as_deref(), Some("git push -f\n"));
        assert_eq!(base64("Z2l0IHB1c2ggLWY=").as_deref(), Some("git push -f"));
        assert_eq!(hex("676974 2070").as_deref(), Some("git p"));
        assert_eq!(hidden("exec(b64decode('Z2l0IHB1c2ggLWY='))"), ["git push -f"]);
        assert!(base64("a*b").is_none() && hex("xy").is_none());
    }
}
