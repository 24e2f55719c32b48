//! Reports of a run in which every name and text tries to be something else (F78, F94): the structure of what is rendered
//! must be that of a harmless run. Only tests.

use super::html::html;
use super::input::{ChangeKind, FileChange, PatchText, StepTail};
use super::junit::junit;
use super::markdown::markdown;
use super::sample::World;
use super::text::{StatusRow, Style, end_block, show_tree, status_table};
use crate::domain::budget::Budget;
use crate::domain::event::EventKind;
use crate::domain::record::{Dirty, RunSummary};
use crate::domain::run::RunStatus;
use crate::domain::sample::{at, event, key, meaning_of, view};

/// What the harmless run says wherever the hostile one says something else.
const HARMLESS: &str = "harmless";

const PAYLOADS: &[&str] = &[
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "'><svg/onload=alert(1)>",
    "</pre></code></style><script>alert(1)</script>",
    "<!-- --> <![CDATA[ ]]>",
    "javascript:alert(1)",
    "[click](javascript:alert(1))",
    "![pixel](https://evil.example/p.png)",
    "<https://evil.example>",
    "https://evil.example/bare www.evil.example",
    "[ref]: https://evil.example",
    "`code` ``more`` ```fence```",
    "```\n# broken out\n```",
    "~~~\n# broken out",
    "a | b | c",
    "\\| \\` \\",
    "# heading",
    "text\n\n# heading\n\n| a |\n| --- |\n",
    "text\n===\n",
    "- item",
    "1. item",
    "> quote",
    "* * *",
    "---",
    "    indented",
    "**bold** _it_ ~~no~~ $x$",
    "@everyone #1 GH-1",
    "&lt;script&gt; &#x3c;",
    "\u{1b}]8;;http://evil\u{1b}\\x\u{1b}[2J\u{9b}31m",
    "\u{202e}txt.exe \u{e0041}\u{200b}",
    "line\rover \u{8}\u{0}",
];

/// A failed run in which `text` stands wherever somebody else's text can stand.
fn world(text: &str) -> World {
    let mut view = view(RunStatus::Failed);
    let own = || text.to_owned();
    view.inputs.spec.title = Some(own());
    view.inputs.notes = vec![own()];
    view.inputs.dirty = Dirty::Ignored { paths: vec![own()] };
    view.run.message = Some(own());
    view.run.components.mode = own();
    view.run.components.prompt_version = Some(own());
    view.run.components.policy_version = own();
    view.run.components.base_commit = own();
    view.steps[2].message = Some(own());
    view.executions[0].model = Some(own());
    view.executions[0].result = Some(own());
    view.executions[1].end = Some(crate::domain::outcome::ProcessEnd::FailedToStart { message: own() });
    view.artifacts[1].path = own();
    let changes = vec![FileChange { path: own(), kind: ChangeKind::Added, added: Some(3), removed: None }];
    let one_line = text.replace(['\n', '\r'], " ");
    let patch = PatchText {
        path: own(),
        text: format!("diff --git a/x b/x\n@@ -1 +1 @@\n-old {one_line}\n+{one_line}\n"),
        cut: true,
    };
    let tails = vec![StepTail { step: key("qa"), path: own(), text: format!("end {text}"), cut: true }];
    let events = vec![event(EventKind::WarningRaised, text), event(EventKind::DifferenceAccepted, text)];
    let meaning = meaning_of(&view.run);
    World { view, meaning, changes, patch, events, tails, warnings: vec![own()], limits: Budget::default() }
}

/// Every tag of a page, without its text. A warning about hidden characters is one item more.
fn tags(page: &str) -> Vec<&str> {
    page.split('<').skip(1).map(|part| part.split_once('>').map_or(part, |(tag, _)| tag)).collect()
}

fn hides(text: &str) -> bool {
    crate::domain::text::hidden_characters(text) > 0
}

#[test]
fn f78_no_data_becomes_html() {
    let harmless = html(&world(HARMLESS).input());
    for payload in PAYLOADS {
        let page = html(&world(payload).input());
        let mut found = tags(&page);
        if hides(payload) {
            let extra = found.iter().position(|t| *t == "li").unwrap();
            found.drain(extra..extra + 2);
        }
        assert_eq!(found, tags(&harmless), "{payload:?}");
    }
    assert_eq!(harmless.matches("Content-Security-Policy").count(), 1);
    for never in ["<script", "javascript:", "http:", "https:", "src=", "href=", " on", "url("] {
        let attributes = tags(&harmless).join("\n");
        assert!(!attributes.contains(never), "{never}");
    }
}

fn unbase64(text: &str) -> Vec<u8> {
    let letters = ('A'..='Z').chain('a'..='z').chain('0'..='9').chain(['+', '/']).collect::<Vec<_>>();
    let bits = |c: char| letters.iter().position(|l| *l == c).unwrap();
    let bits = text.trim_end_matches('=').chars().map(bits).flat_map(|n| (0..6).rev().map(move |i| n >> i & 1));
    let bits = bits.collect::<Vec<_>>();
    bits.chunks_exact(8).map(|byte| byte.iter().fold(0, |n, bit| n << 1 | u8::try_from(*bit).unwrap())).collect()
}

#[test]
fn f78_the_content_policy_allows_exactly_the_style_sheet() {
    let page = html(&world(HARMLESS).input());
    assert!(page.contains("default-src 'none'; style-src 'sha256-"), "no script, no image, no address");
    let style = page.split_once("<style>").and_then(|(_, rest)| rest.split_once("</style>")).unwrap().0;
    let named = page.split_once("'sha256-").and_then(|(_, rest)| rest.split_once('\'')).unwrap().0;
    assert_eq!(unbase64(named), crate::domain::hash::encoding::Sha256Hash::of(style.as_bytes()).0);
    assert!(!page.contains("unsafe-inline"));
    assert_eq!(page.matches("style=").count(), 0, "an inline style would not be allowed");
}

/// What Markdown reads as structure: the kind of each line, and the number of cells of a row.
fn skeleton(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut fence: Option<&str> = None;
    for line in text.lines() {
        let ticks = &line[..line.len() - line.trim_start_matches('`').len()];
        match fence {
            Some(open) if ticks.len() >= open.len() && line.trim_end() == ticks => {
                fence = None;
                out.push("end of block".to_owned());
            }
            Some(_) => {}
            None if ticks.len() >= 3 => {
                fence = Some(ticks);
                out.push("block".to_owned());
            }
            None => out.push(kind(line)),
        }
    }
    out
}

fn kind(line: &str) -> String {
    let bars = line.replace("\\\\", "").replace("\\|", "").matches('|').count();
    match line.split(' ').next().unwrap_or_default() {
        "|" => format!("row of {bars}"),
        word @ ("#" | "##" | "-" | "|---" | "1.") => word.to_owned(),
        _ if line.starts_with("  - ") => "sub-item".to_owned(),
        _ if line.is_empty() => "empty".to_owned(),
        _ => "text".to_owned(),
    }
}

/// A line without its code spans.
fn outside_code(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(at) = rest.find('`') {
        let ticks = rest[at..].len() - rest[at..].trim_start_matches('`').len();
        let (before, after) = (&rest[..at], &rest[at + ticks..]);
        let end = "`".repeat(ticks);
        let close = after
            .match_indices(&end)
            .map(|(i, _)| i)
            .find(|i| !after[..*i].ends_with('`') && !after[i + ticks..].starts_with('`'));
        out.push_str(before);
        rest = match close {
            Some(close) if !before.ends_with('\\') => &after[close + ticks..],
            _ => after,
        };
    }
    out + rest
}

/// Lines that are in no block.
fn outside_blocks(text: &str) -> impl Iterator<Item = &str> {
    let mut fence: Option<&str> = None;
    text.lines().filter(move |line| {
        let ticks = &line[..line.len() - line.trim_start_matches('`').len()];
        match fence {
            Some(open) if ticks.len() >= open.len() && line.trim_end() == ticks => fence = None,
            None if ticks.len() >= 3 => fence = Some(ticks),
            None => return true,
            Some(_) => {}
        }
        false
    })
}

#[test]
fn f78_markdown_carries_no_html_link_or_mention() {
    for payload in PAYLOADS {
        for line in outside_blocks(&markdown(&world(payload).input())) {
            let line = outside_code(line).replace("<code>", "").replace("</code>", "").replace("\\]", "");
            for never in ["<", "](", "://", "www.", "@e", "#1"] {
                assert!(!line.contains(never), "{never} of {payload:?} in {line}");
            }
        }
    }
}

#[test]
fn f78_no_data_becomes_markdown() {
    let harmless = skeleton(&markdown(&world(HARMLESS).input()));
    for payload in PAYLOADS {
        let text = markdown(&world(payload).input());
        let mut found = skeleton(&text);
        if hides(payload) {
            let extra = found.iter().position(|k| k == "-").unwrap();
            let warnings = text.lines().position(|l| l == "## Warnings").unwrap();
            assert!(text.lines().nth(warnings + 2).unwrap().contains("invisible"), "it comes first");
            found.remove(extra);
        }
        assert_eq!(found, harmless, "{payload:?}\n{text}");
    }
}

#[test]
fn f94_no_report_carries_a_control_character() {
    let control = |c: char| c.is_control() && c != '\n' && c != '\t';
    for payload in PAYLOADS.iter().chain(&["", " ", "\n"]) {
        let world = world(payload);
        let input = world.input();
        let summary = RunSummary {
            run: world.view.run.clone(),
            title: world.view.inputs.spec.title.clone(),
            step: None,
            usage: world.view.usage,
        };
        let rows = [StatusRow { summary: &summary, meaning: &world.meaning }];
        let plain = Style::plain();
        let texts = [
            html(&input),
            markdown(&input),
            junit(&input).unwrap(),
            end_block(&world.view, &world.meaning, &plain),
            show_tree(&world.view, &world.meaning, &plain),
            status_table(&rows, at(400), &plain),
        ];
        for text in texts {
            assert_eq!(text.chars().find(|c| control(*c) || hides(&c.to_string())), None, "{payload:?}");
        }
    }
}
