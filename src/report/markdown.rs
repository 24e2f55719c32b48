//! `report.md`: the story for people and for pull requests. Data is escaped so that it stays data: no heading, link, image,
//! table cell or HTML comes out of it.

use std::fmt::Write as _;

use super::input::{FileChange, ReportInput};
use super::story::{Excerpt, StepLine, Story, Tone};

/// Changed files that the list names; the patch has all of them.
const MAX_FILES: usize = 200;

/// Renders the report.
pub fn markdown(input: &ReportInput<'_>) -> String {
    let story = Story::of(input);
    let mut out = head(&story);
    section(&mut out, "What changed", &changes(&story));
    section(&mut out, "Checks", &checks(&story));
    section(&mut out, "Warnings", &bullets(&story.warnings));
    section(&mut out, "How it went", &timeline(&story));
    section(&mut out, "Cost", &table(&["", "this run", "task", "limit"], story.usage.iter().map(usage_row)));
    section(&mut out, "Last word of the agent", &story.last_word.as_deref().map(fenced).unwrap_or_default());
    section(&mut out, "Accepted differences", &bullets(&story.accepted));
    let artifacts = story.artifacts.iter().map(|a| vec![text(&a.kind), code(&a.path), text(&a.size), code(&a.sha256)]);
    section(&mut out, "Artifacts", &table(&["type", "path", "size", "sha256"], artifacts));
    section(&mut out, "Facts", &table(&["", ""], story.facts.iter().map(|f| vec![text(f.name), code(&f.value)])));
    let _ = write!(out, "\nAudit log: {}.\n", text(&story.audit));
    out
}

fn head(story: &Story) -> String {
    let sign = match story.tone {
        Tone::Good => "✅",
        Tone::Bad => "❌",
        Tone::Open => "⏳",
    };
    let mut out = format!("# {sign} {}: {}\n\n", text(&story.run), text(&story.status));
    if let Some(title) = &story.title {
        let _ = write!(out, "{}\n\n", text(title));
    }
    for sentence in &story.verdict {
        let _ = writeln!(out, "{}", text(sentence));
    }
    if let Some(next) = &story.next {
        let _ = write!(out, "\nNext: {}\n", code(next));
    }
    out
}

/// An empty section is left out.
fn section(out: &mut String, title: &str, body: &str) {
    if !body.is_empty() {
        let _ = write!(out, "\n## {title}\n\n{}\n", body.trim_end_matches('\n'));
    }
}

fn changes(story: &Story) -> String {
    let row = |c: &FileChange| {
        let lines = |n: Option<u64>| n.map_or_else(|| "binary".to_owned(), |n| n.to_string());
        vec![code(&c.path), text(&c.kind.to_string()), lines(c.added), lines(c.removed)]
    };
    let mut out = table(&["file", "what", "+", "−"], story.changes.iter().take(MAX_FILES).map(row));
    if let Some(more) = story.changes.len().checked_sub(MAX_FILES).filter(|n| *n > 0) {
        let _ = write!(out, "\n… and {more} more.\n");
    }
    if let Some(patch) = &story.patch {
        let _ = write!(out, "\nThe patch is {}.\n", code(&patch.path));
    } else if story.changes.is_empty() {
        out.push_str("Nothing.\n");
    }
    out
}

fn checks(story: &Story) -> String {
    let mut out = step_table(&story.checks);
    let red = story.checks.iter().filter(|c| c.tone == Tone::Bad);
    for (check, output) in red.filter_map(|c| Some((c, c.output.as_ref()?))) {
        let _ = write!(out, "\nThe end of {} ({}):\n\n{}", code(&output.path), text(&check.key), excerpt(output));
    }
    out
}

fn timeline(story: &Story) -> String {
    let mut out = String::new();
    for attempt in &story.attempts {
        let took = attempt.duration.as_deref().map(|d| format!(", took {d}")).unwrap_or_default();
        let _ = writeln!(
            out,
            "- Attempt {} ({}) began {}{took}: {}",
            attempt.number,
            text(&attempt.opened_by),
            text(&attempt.started),
            text(&attempt.state)
        );
        for execution in &attempt.executions {
            let _ = writeln!(out, "  - {}", text(execution));
        }
    }
    if !story.steps.is_empty() {
        let _ = write!(out, "\n{}", step_table(&story.steps));
    }
    out
}

fn step_table(steps: &[StepLine]) -> String {
    let row = |s: &StepLine| {
        let duration = s.duration.clone().unwrap_or_default();
        let reason = s.reason.as_deref().map(text).unwrap_or_default();
        vec![code(&s.key), text(&s.kind), text(&s.state), s.runs.to_string(), duration, reason]
    };
    table(&["step", "kind", "state", "runs", "took", "why"], steps.iter().map(row))
}

fn usage_row(line: &super::story::UsageLine) -> Vec<String> {
    vec![text(&line.name), text(&line.run), text(&line.task), text(&line.limit)]
}

fn bullets(lines: &[String]) -> String {
    lines.iter().fold(String::new(), |mut out, line| {
        let _ = writeln!(out, "- {}", text(line));
        out
    })
}

fn table(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut rows = rows.peekable();
    if rows.peek().is_none() {
        return String::new();
    }
    let mut out = format!("| {} |\n|{}\n", head.join(" | "), " --- |".repeat(head.len()));
    for row in rows {
        let _ = writeln!(out, "| {} |", row.join(" | "));
    }
    out
}

/// Plain text on one line: whatever Markdown, GitHub or HTML would read as a sign is escaped or taken apart; a sign that
/// is none where it stands stays readable.
fn text(data: &str) -> String {
    let chars: Vec<char> = data.trim_start().chars().collect();
    let mut out = String::with_capacity(data.len());
    for (i, c) in chars.iter().copied().enumerate() {
        let after = chars.get(i + 1).copied().unwrap_or(' ');
        let inside_word = i > 0 && chars[i - 1].is_alphanumeric() && after.is_alphanumeric();
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\n' | '\t' => out.push(' '),
            '_' if inside_word => out.push('_'),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '$' => out.extend(['\\', c]),
            '-' | '=' | '+' | '#' if i == 0 => out.extend(['\\', c]),
            // `1. ` at the beginning would be a list, `https://` and `www.` anywhere a link.
            '.' | ')' if chars[..i].iter().all(char::is_ascii_digit) => out.extend(['\\', c]),
            '.' if chars[..i].ends_with(&['w', 'w', 'w']) => out.push_str("&#46;"),
            ':' if after == '/' => out.push_str("&#58;"),
            // GitHub turns these into mentions, which notify people, and references; escapes do not keep it from that.
            '@' | '#' if after.is_alphanumeric() => {
                out.push(c);
                out.push_str("&#8288;");
            }
            c => out.push(c),
        }
    }
    out
}

/// A value on one line, set like code, with a fence longer than any run of backticks in it.
fn code(data: &str) -> String {
    let data = data.replace(['\n', '\t'], " ");
    // No escape of a pipe means the same inside a table and outside of one, before a backslash and after it.
    if data.contains('|') {
        return format!("<code>{}</code>", text(&data));
    }
    let fence = "`".repeat(longest_run(&data) + 1);
    let pad = if data.starts_with('`') || data.ends_with('`') || data.trim().is_empty() { " " } else { "" };
    format!("{fence}{pad}{data}{pad}{fence}")
}

fn excerpt(excerpt: &Excerpt) -> String {
    let more = if excerpt.cut { "…\n" } else { "" };
    fenced(&format!("{more}{}", excerpt.text))
}

/// A block of foreign text, with a fence longer than any run of backticks in it.
fn fenced(data: &str) -> String {
    let fence = "`".repeat((longest_run(data) + 1).max(3));
    format!("{fence}text\n{}\n{fence}\n", data.trim_end_matches('\n'))
}

fn longest_run(data: &str) -> usize {
    let mut longest = 0;
    let mut run = 0;
    for c in data.chars() {
        run = if c == '`' { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    longest
}
