//! The valid name that a mistyped one is most like. Decides nothing: what it finds is only shown.

/// The candidate nearest to `found`, if one is near enough to be meant.
pub fn nearest<'a>(found: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let folded = fold(found);
    let limit = (folded.chars().count() / 3).clamp(1, 4);
    let scored = candidates.into_iter().map(|c| (distance(&folded, &fold(c)), c));
    scored.filter(|(d, _)| *d <= limit).min_by_key(|(d, _)| *d).map(|(_, c)| c)
}

/// `Send-Back` and `send_back` differ by spelling alone.
fn fold(name: &str) -> String {
    name.chars().take(64).map(|c| if c == '-' { '_' } else { c.to_ascii_lowercase() }).collect()
}

/// Edit distance where two swapped neighbours count once.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let change = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = change.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_and_a_strange_one_is_not() {
        let names = ["prompt", "timeout", "send_back_to", "run"];
        for (found, expected) in [
            ("promt", Some("prompt")),
            ("Timeout", Some("timeout")),
            ("timoeut", Some("timeout")),
            ("send-back-to", Some("send_back_to")),
            ("rnu", Some("run")),
            ("zebra", None),
            ("", None),
        ] {
            assert_eq!(nearest(found, names), expected, "{found}");
        }
    }
}
