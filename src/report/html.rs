//! `report.html`: the story as one file that needs nothing else: no script, no image, no font, no address. A strict content
//! policy names the one style sheet by its hash, so that data that got through as HTML still could not act.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest as _, Sha256};

use super::input::{FileChange, ReportInput};
use super::story::{AttemptLine, Excerpt, StepLine, Story, Tone};

/// Changed files that the list names; the patch has all of them.
const MAX_FILES: usize = 500;

const STYLE: &str = include_str!("report.css");

/// Renders the report.
pub fn html(input: &ReportInput<'_>) -> String {
    let story = Story::of(input);
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'",
        base64(&Sha256::digest(STYLE.as_bytes()))
    );
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="referrer" content="no-referrer";
                meta name="color-scheme" content="light dark";
                title { (story.run) ": " (story.status) }
                style { (PreEscaped(STYLE)) }
            }
            body { main { (body(&story)) } }
        }
    };
    page.into_string()
}

fn body(story: &Story) -> Markup {
    html! {
        (head(story))
        (changes(story))
        (checks(story))
        (lines("Warnings", "warn", &story.warnings))
        (timeline(story))
        (usage(story))
        @if let Some(word) = &story.last_word {
            section { h2 { "Last word of the agent" } pre { (word) } }
        }
        (lines("Accepted differences", "plain", &story.accepted))
        (artifacts(story))
        section {
            h2 { "Facts" }
            dl { @for fact in &story.facts { dt { (fact.name) } dd { (fact.value) } } }
        }
        footer { p { "Audit log: " (story.audit) "." } }
    }
}

fn tone(tone: Tone) -> &'static str {
    match tone {
        Tone::Good => "good",
        Tone::Bad => "bad",
        Tone::Open => "open",
    }
}

fn head(story: &Story) -> Markup {
    html! {
        header class=(tone(story.tone)) {
            p class="run" { (story.run) }
            h1 { (story.status) }
            @if let Some(title) = &story.title { p class="title" { (title) } }
            @for sentence in &story.verdict { p { (sentence) } }
            @if let Some(next) = &story.next { p class="next" { "Next: " code { (next) } } }
        }
    }
}

fn lines(title: &str, class: &str, lines: &[String]) -> Markup {
    html! {
        @if !lines.is_empty() {
            section class=(class) { h2 { (title) } ul { @for line in lines { li { (line) } } } }
        }
    }
}

fn changes(story: &Story) -> Markup {
    let lines = |n: Option<u64>| n.map_or_else(|| "binary".to_owned(), |n| n.to_string());
    let row = |c: &FileChange| {
        html! {
            tr {
                td { code { (c.path) } }
                td { (c.kind) }
                td class="number added" { (lines(c.added)) }
                td class="number removed" { (lines(c.removed)) }
            }
        }
    };
    html! {
        section {
            h2 { "What changed" }
            @if story.changes.is_empty() { p { "Nothing." } } @else {
                div class="scroll" { table {
                    thead { tr { th { "file" } th { "what" } th class="number" { "+" } th class="number" { "−" } } }
                    tbody { @for change in story.changes.iter().take(MAX_FILES) { (row(change)) } }
                } }
            }
            @if story.changes.len() > MAX_FILES { p { "… and " (story.changes.len() - MAX_FILES) " more." } }
            @if let Some(patch) = &story.patch { (diff(patch)) }
        }
    }
}

/// The patch, line by line: the sign says it, the colour repeats it.
fn diff(patch: &Excerpt) -> Markup {
    let class = |line: &str| match line.as_bytes() {
        [b'+', b'+', b'+', ..] | [b'-', b'-', b'-', ..] | [b'd', b'i', b'f', b'f', b' ', ..] => "file",
        [b'@', b'@', ..] => "hunk",
        [b'+', ..] => "added",
        [b'-', ..] => "removed",
        _ => "same",
    };
    html! {
        details open[patch.text.len() < 20_000] {
            summary { code { (patch.path) } @if patch.cut { " (its beginning)" } }
            pre class="diff" { @for line in patch.text.lines() { span class=(class(line)) { (line) "\n" } } }
        }
    }
}

fn checks(story: &Story) -> Markup {
    html! {
        @if !story.checks.is_empty() {
            section {
                h2 { "Checks" }
                (steps(&story.checks))
                @for output in story.checks.iter().filter_map(|c| c.output.as_ref().map(|o| (c, o))) {
                    details open[output.0.tone == Tone::Bad] {
                        summary { "Output of " (output.0.key) ": " code { (output.1.path) } }
                        pre { @if output.1.cut { "…\n" } (output.1.text) }
                    }
                }
            }
        }
    }
}

fn steps(steps: &[StepLine]) -> Markup {
    html! {
        div class="scroll" { table {
            thead { tr { th { "step" } th { "kind" } th { "state" } th class="number" { "runs" } th { "took" } th { "why" } } }
            tbody {
                @for step in steps {
                    tr {
                        td { code { (step.key) } }
                        td { (step.kind) }
                        td { span class={ "state " (tone(step.tone)) } { (step.state) } }
                        td class="number" { (step.runs) }
                        td { (step.duration.as_deref().unwrap_or_default()) }
                        td { (step.reason.as_deref().unwrap_or_default()) }
                    }
                }
            }
        } }
    }
}

fn timeline(story: &Story) -> Markup {
    let attempt = |a: &AttemptLine| {
        html! {
            li {
                "Attempt " (a.number) " (" (a.opened_by) ") began " (a.started)
                @if let Some(took) = &a.duration { ", took " (took) }
                ": " (a.state)
                @if !a.executions.is_empty() { ul { @for line in &a.executions { li { (line) } } } }
            }
        }
    };
    html! {
        section {
            h2 { "How it went" }
            ol class="attempts" { @for line in &story.attempts { (attempt(line)) } }
            (steps(&story.steps))
        }
    }
}

fn usage(story: &Story) -> Markup {
    html! {
        section {
            h2 { "Cost" }
            div class="scroll" { table {
                thead { tr { th {} th class="number" { "this run" } th class="number" { "task" } th class="number" { "limit" } } }
                tbody {
                    @for line in &story.usage {
                        tr {
                            td { (line.name) }
                            td class="number" { (line.run) }
                            td class="number" { (line.task) }
                            td class="number" { (line.limit) }
                        }
                    }
                }
            } }
        }
    }
}

fn artifacts(story: &Story) -> Markup {
    html! {
        @if !story.artifacts.is_empty() {
            section {
                h2 { "Artifacts" }
                div class="scroll" { table {
                    thead { tr { th { "type" } th { "path" } th class="number" { "size" } th { "sha256" } } }
                    tbody {
                        @for a in &story.artifacts {
                            tr {
                                td { (a.kind) }
                                td { code { (a.path) } }
                                td class="number" { (a.size) }
                                td { code class="hash" { (a.sha256) } }
                            }
                        }
                    }
                } }
            }
        }
    }
}

/// Base64 of a hash, for the content policy; not worth a library.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let at = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for i in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * i) & 63) as usize];
            out.push(if i <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    out
}
