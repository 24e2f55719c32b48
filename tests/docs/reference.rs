//! Pages made from the tables of the program: commands, errors, exit codes, events, environment, JSON, migrations.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use agentrun::cli::args::Args;
use agentrun::cli::error::hint;
use agentrun::config::env_vars::{self, SetBy};
use agentrun::domain::event::{EVENT_VERSION, EventKind};
use agentrun::domain::failure::{Code, Effect, Exit, Retry};
use agentrun::domain::machine::Word;
use agentrun::process::environment::{ALWAYS, FOR_COMMANDS};
use clap::{Arg, Command, CommandFactory as _};

use crate::{Page, cell, files_below, read};

pub(crate) fn pages() -> Vec<Page> {
    vec![
        Page { path: "docs/reference/commands.md", text: commands() },
        Page { path: "docs/reference/errors.md", text: errors() },
        Page { path: "docs/reference/exit-codes.md", text: exit_codes() },
        Page { path: "docs/reference/events.md", text: events() },
        Page { path: "docs/reference/environment.md", text: environment() },
        Page { path: "docs/reference/json.md", text: json() },
        Page { path: "docs/reference/migrations.md", text: migrations() },
    ]
}

fn commands() -> String {
    let mut command = Args::command();
    command.build();
    let mut out = "# Commands\n\n`agentrun COMMAND --help` says the same in the terminal, `agentrun man` as a manual page.\n\n\
        Progress and messages go to standard error; the one result goes to standard output. What the exit status means:\n\
        [exit-codes.md](exit-codes.md).\n\n## Options of every command\n\n"
        .to_owned();
    for global in command.get_arguments().filter(|a| a.is_global_set()) {
        argument(&mut out, global);
    }
    for verb in command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
        one_command(&mut out, verb, verb.get_name(), "##");
    }
    out
}

fn one_command(out: &mut String, command: &Command, name: &str, level: &str) {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let _ = write!(out, "\n{level} {name}\n\n{}\n", sentence(&about));
    let children: Vec<_> = command.get_subcommands().filter(|c| c.get_name() != "help").collect();
    if !children.is_empty() {
        for child in children {
            one_command(out, child, &format!("{name} {}", child.get_name()), "###");
        }
        return;
    }
    let own: Vec<_> = command.get_arguments().filter(|a| !a.is_global_set() && !a.is_hide_set()).collect();
    let own: Vec<_> = own.into_iter().filter(|a| !["help", "version"].contains(&a.get_id().as_str())).collect();
    let positional = own.iter().filter(|a| a.is_positional()).map(|a| {
        let name = a.get_id().as_str().to_uppercase();
        if a.is_required_set() { format!(" {name}") } else { format!(" [{name}]") }
    });
    let options = if own.iter().any(|a| !a.is_positional()) { " [OPTIONS]" } else { "" };
    let _ = write!(out, "\n```text\nagentrun {name}{options}{}\n```\n\n", positional.collect::<String>());
    for one in own {
        argument(out, one);
    }
}

fn argument(out: &mut String, argument: &Arg) {
    let mut names: Vec<String> = argument.get_short().map(|s| format!("-{s}")).into_iter().collect();
    names.extend(argument.get_long().map(|l| format!("--{l}")));
    if names.is_empty() {
        names.push(argument.get_id().as_str().to_uppercase());
    } else if argument.get_action().takes_values() {
        let value = argument.get_value_names().and_then(|v| v.first()).map(ToString::to_string);
        let last = names.len() - 1;
        let _ = write!(names[last], " {}", value.unwrap_or_default());
    }
    let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let values: Vec<_> = argument.get_possible_values().iter().map(|v| format!("`{}`", v.get_name())).collect();
    let one_of = if values.is_empty() || !argument.get_action().takes_values() {
        String::new()
    } else {
        format!(" One of {}.", values.join(", "))
    };
    let _ = writeln!(out, "- `{}` – {}{one_of}", names.join("`, `"), sentence(&help));
}

/// clap takes the full stop off a help text.
fn sentence(text: &str) -> String {
    let text = text.trim();
    if text.is_empty() || text.ends_with(['.', '?', '!']) { text.to_owned() } else { format!("{text}.") }
}

fn retry_words(retry: Retry) -> &'static str {
    match retry {
        Retry::Never => "never: it would fail again",
        Retry::Now => "at once; nothing has to change",
        Retry::Later => "after a while",
        Retry::AfterFix => "after something was changed",
        Retry::AfterApproval => "after a person decided",
        Retry::AfterReconcile => "after the outcome is known",
    }
}

fn effect_words(effect: Effect) -> &'static str {
    match effect {
        Effect::None => "nothing happened",
        Effect::Maybe => "something may have happened",
        Effect::Done => "it happened",
    }
}

fn errors() -> String {
    let mut out = "# Errors\n\nEvery failure has a code, and the code decides what follows from it. In the terminal:\n\
        `agentrun explain CODE`. In JSON an error is `agentrun/error/1` with the same fields.\n\n\
        \"Tried again by itself\" is what agentrun does within the limits of the policy; \"same command\" is when it makes\n\
        sense that you do.\n\n| code | exit | tried again by itself | meaning |\n| --- | --- | --- | --- |\n"
        .to_owned();
    for code in Code::ALL {
        let entry = code.entry();
        let again = if entry.retryable { "yes" } else { "no" };
        let (word, exit) = (code.word(), entry.exit.code());
        let anchor = word.to_lowercase();
        let _ = writeln!(out, "| [{word}](#{anchor}) | {exit} | {again} | {} |", cell(entry.meaning));
    }
    for code in Code::ALL {
        let entry = code.entry();
        let _ = write!(
            out,
            "\n## {}\n\n{}.\n\n- tried again by itself: {}\n- same command: {}\n- effect outside: {}\n- exit: {} ({})\n- what to do: {}\n",
            code.word(),
            capital(entry.meaning),
            if entry.retryable { "yes, within the limits of the policy" } else { "no" },
            retry_words(entry.retry),
            effect_words(entry.effect),
            entry.exit.code(),
            entry.exit.name(),
            hint(*code).replace("{run}", "RUN"),
        );
    }
    out
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|c| c.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

fn exit_codes() -> String {
    let mut out =
        "# Exit codes\n\nThe number says what to do next. A child's own exit code is never passed through.\n\n\
        | code | name | meaning | error codes that lead to it |\n| --- | --- | --- | --- |\n"
            .to_owned();
    for exit in Exit::ALL {
        let codes: Vec<_> = Code::ALL.iter().filter(|c| c.entry().exit == *exit).map(|c| c.word()).collect();
        let _ = writeln!(out, "| {} | {} | {} | {} |", exit.code(), exit.name(), exit.meaning(), codes.join(", "));
    }
    let mut careful: Vec<_> = Exit::ALL.iter().copied().filter(|e| e.care() < usize::MAX).collect();
    careful.sort_by_key(|e| e.care());
    let ranked = careful.iter().filter(|e| e.care() < Exit::Ok.care()).map(|e| e.code().to_string());
    let _ = write!(
        out,
        "\nWhere several causes meet, the most careful one wins, in this order: {}.\n\nWhat `agentrun start` ends with when an \
         equal run is there already:\n\n| the run is | `start` | exit |\n| --- | --- | --- |\n\
         | SUCCEEDED | returns its result | 0 |\n\
         | RUNNING, and its process lives | follows it to its end; with `--no-wait` or `--detach` says so | its own; 7 |\n\
         | RUNNING without a living process, INTERRUPTED | goes on with it, as `resume` would | its own |\n\
         | WAITING_APPROVAL | runs nothing | 3 |\n| RETRYING | runs nothing | 18 |\n| OUTCOME_UNKNOWN | runs nothing | 4 |\n\
         | REVIEW_REQUIRED | runs nothing | 17 |\n\
         | FAILED, DEAD_LETTER, BUDGET_EXCEEDED, BLOCKED | runs nothing; with `--resume` goes on | that of its error code |\n\
         | CANCELED | runs nothing; `--new` begins another | 9 |\n",
        ranked.collect::<Vec<_>>().join(", ")
    );
    out
}

fn events() -> String {
    let mut out = format!(
        "# Audit events\n\n`agentrun audit log` shows them, `agentrun audit verify` checks their chains. The set is closed: a name that is\n\
         not here is written nowhere. Their bodies have version {EVENT_VERSION}; a reader that meets a newer one shows it and interprets nothing.\n\n\
         | event | when |\n| --- | --- |\n"
    );
    for kind in EventKind::ALL {
        let _ = writeln!(out, "| `{}` | {} |", kind.word(), cell(kind.meaning()));
    }
    out.push_str(
        "\n## The chain\n\nEach run has a chain of its own, and `home` is the chain for what belongs to no run. Every event holds the hash of the\n\
         one before it (`prev`, 64 zeros for the first) and its own (`hash`), so a changed, missing or moved event shows. That a chain\n\
         was cut at its end or written anew as a whole shows against the manifest of the run, which names the number of events\n\
         (`generation`) and the hash of the last one (`auditHead`).\n\n\
         `hash` is SHA-256 over the encoding of [fingerprint.md](../fingerprint.md#the-encoding) with the domain word `agentrun-event/1` and\n\
         these fields in this order: `prev` (hex), `id`, `chain`, `n`, `at` (milliseconds), `kind`, `version`, `actor`, `request_id`, `run`,\n\
         `attempt`, `step`, `reason`, `body`. Numbers are decimal text; `run`, `attempt`, `step` and `reason` may be absent; `body` is canonical JSON\n\
         (sorted keys, no blanks).\n",
    );
    out
}

fn environment() -> String {
    let mut out =
        "# Environment\n\n## Variables that agentrun reads\n\n| variable | meaning |\n| --- | --- |\n".to_owned();
    let rows = |out: &mut String, set_by: SetBy| {
        for variable in env_vars::ALL.iter().filter(|v| v.set_by == set_by) {
            let _ = writeln!(out, "| `{}` | {} |", variable.name, cell(variable.meaning));
        }
    };
    rows(&mut out, SetBy::Caller);
    out.push_str("\n## Variables that agentrun sets for what it starts\n\n| variable | meaning |\n| --- | --- |\n");
    rows(&mut out, SetBy::Agentrun);
    out.push_str(
        "| `AGENTRUN_INPUT_<NAME>` | For commands and checks: the task's input of that name, in upper case. |\n\
         | `AGENTRUN_PROMPT_FILE` | For agents with the agentrun protocol: the file with the prompt, which is on standard input too. |\n\
         | `AGENTRUN_SESSION` | For agents with the agentrun protocol: the conversation to go on in, if there is one. |\n\n\
         Names that begin with `AGENTRUN_` are agentrun's own: no task and no policy may set or pass them.\n\n\
         ## What children see of your environment\n\nEverything that is not listed is withheld. A name that ends in `*` stands for all that begin so.\n\nEvery child: ",
    );
    out.push_str(&listed(ALWAYS));
    out.push_str(
        ".\n\nAgents also get the names in `env` of their entry in the policy. Steps of kind `command` and `qa` also get the names in the\n\
         policy's own `env`, the step's `env`, and these:\n\n",
    );
    out.push_str(&listed(FOR_COMMANDS));
    out.push_str(".\n");
    out
}

fn listed(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn json() -> String {
    let mut out = "# JSON documents\n\nWith `--json` a command prints exactly one document on standard output (`logs --json` one per line). Its first\n\
        field to look at is `schema`: `agentrun/<name>/<version>`. Within a version fields may be added; none is renamed,\n\
        removed or given another meaning, so readers should ignore what they do not know.\n\n\
        | document | answered by | schema |\n| --- | --- | --- |\n"
        .to_owned();
    let by = BTreeMap::from([
        ("action-record", "`action show`, `action assign`, `action resolve`"),
        ("actions", "`action list`"),
        ("apply", "`apply`"),
        ("policy-check", "`policy check`"),
        ("policy-test", "`policy test`"),
        ("policy-explain", "`policy explain`"),
        ("approval", "`approve`, `reject`, `approval show`, `approval revoke`"),
        ("approvals", "`approval list`"),
        ("action", "`action request`, and over MCP `request_action`, `action_status`"),
        ("artifacts", "`artifact list`, `artifact verify`"),
        ("budget", "`show --budget`"),
        ("catalogue", "`explain` without a code"),
        ("diff", "`diff`"),
        ("doctor", "`doctor`"),
        ("error", "every command that could not do what it was asked"),
        ("events", "`audit log`, `audit verify`"),
        ("explain", "`explain CODE`"),
        ("fingerprint", "`fingerprint`"),
        ("gc", "`gc`"),
        ("init", "`init`"),
        ("log", "`logs`, one per line"),
        ("plan", "`start --dry-run`"),
        ("reconcile", "`reconcile`"),
        ("resume", "`resume --dry-run`"),
        ("run", "`start`, `resume`, `show`, `cancel`; `result.json` of a run"),
        ("status", "`status`"),
    ]);
    for (name, version) in documents() {
        let answered =
            by.get(name.as_str()).unwrap_or_else(|| panic!("say in tests/docs/reference.rs who answers {name}"));
        let file = format!("docs/reference/schemas/{name}.json");
        let schema = if crate::root().join(&file).exists() {
            format!("[{name}.json](schemas/{name}.json)")
        } else {
            "none yet".to_owned()
        };
        let _ = writeln!(out, "| `agentrun/{name}/{version}` | {answered} | {schema} |");
    }
    out
}

/// Every name and version of a document that the program can print, from its source.
fn documents() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for path in files_below("src/report", ".rs") {
        for part in read(&path).split("\"agentrun/").skip(1) {
            let Some((name, version)) = part.split('"').next().and_then(|id| id.split_once('/')) else { continue };
            if version.chars().all(|c| c.is_ascii_digit()) && !name.is_empty() && name != "x" {
                found.insert(name.to_owned(), version.to_owned());
            }
        }
    }
    found
}

fn migrations() -> String {
    let mut out = "# Database migrations\n\nThe database is SQLite; `user_version` is the number of the newest migration. A newer agentrun migrates an older\n\
        database when it first writes to it, and keeps a copy beside it first (`agentrun.db.v1.bak`). An older agentrun refuses a\n\
        newer database (STATE_TOO_NEW, exit 14), unless the newer one says that it may be read or written by it\n\
        (`schema_version.min_reader`, `min_writer`). The way back: stop every agentrun, put the copy in the place of\n\
        `agentrun.db`, remove `agentrun.db-wal` and `agentrun.db-shm`, and use the older program.\n\n\
        | number | what | tables |\n| --- | --- | --- |\n"
        .to_owned();
    for path in files_below("src/store/schema", ".sql") {
        let text = read(&path);
        let first = text.lines().next().unwrap_or_default().trim_start_matches("-- ");
        let (number, what) = first.split_once(": ").expect("a migration begins with `-- Migration N: what`");
        let tables: Vec<_> = text
            .lines()
            .filter_map(|line| line.strip_prefix("CREATE TABLE "))
            .map(|rest| format!("`{}`", rest.split(' ').next().unwrap_or_default()))
            .collect();
        let (number, what) = (number.trim_start_matches("Migration "), what.trim_end_matches('.'));
        let _ = writeln!(out, "| [{number}](../../{path}) | {what} | {} |", tables.join(", "));
    }
    out
}
