//! Finds the push in a git command line, and what it does to the other side: forced, deleting, mirroring, where to.

use std::collections::BTreeMap;

use serde_json::Value;

use super::GIT_PUSH;
use super::shell::{Shell, Stream};
use super::words::{UNKNOWN, parted};

/// Options of git itself that are followed by a value.
const VALUED: [&str; 7] = ["-C", "-c", "--git-dir", "--work-tree", "--namespace", "--super-prefix", "--config-env"];

/// Subcommands that are git's own and push nothing. Of any other one nobody knows what it stands for: an alias, a program.
const OWN: &str = "add am annotate apply archive bisect blame branch bundle cat-file check-attr check-ignore checkout \
    cherry cherry-pick clean clone column commit commit-graph commit-tree config count-objects credential describe diff diff-files \
    diff-index diff-tree difftool fast-export fast-import fetch fetch-pack filter-branch fmt-merge-msg for-each-ref format-patch \
    fsck gc get-tar-commit-id grep gui hash-object help index-pack init init-db interpret-trailers lfs log ls-files ls-remote \
    ls-tree mailinfo mailsplit maintenance merge merge-base merge-file merge-tree mergetool mktag mktree multi-pack-index mv \
    name-rev notes pack-objects pack-refs prune pull range-diff read-tree rebase reflog remote repack replace request-pull rerere \
    reset restore rev-list rev-parse revert rm shortlog show show-branch show-ref sparse-checkout stash status stripspace \
    submodule switch symbolic-ref tag unpack-objects update-index update-ref update-server-info var verify-commit verify-pack \
    verify-tag version whatchanged worktree write-tree";

/// Settings in a session: name in lower case → values.
type Settings = BTreeMap<String, Vec<String>>;

/// A git command line, without the word `git`.
pub(super) fn run(shell: &mut Shell, args: &[String]) {
    let mut settings = shell.git.clone();
    let mut doubt = of_environment(shell, &mut settings);
    let mut rest = args;
    while let Some((first, others)) = rest.split_first().filter(|(first, _)| first.starts_with(['-', UNKNOWN])) {
        doubt |= first.contains(UNKNOWN);
        if first == "--" || (first.starts_with(UNKNOWN) && others.is_empty()) {
            rest = others;
            continue;
        }
        let glued = first.strip_prefix("--config-env=").or(first.strip_prefix("-c").filter(|value| !value.is_empty()));
        let value = glued.map(ToOwned::to_owned).or_else(|| others.first().cloned());
        if first == "-c" || first.starts_with("-c") || first.starts_with("--config-env") {
            doubt |= set(&mut settings, &value.unwrap_or_default(), first.starts_with("--config-env"));
        }
        rest = if VALUED.contains(&first.as_str()) { others.get(1..).unwrap_or_default() } else { others };
    }
    let Some((sub, args)) = rest.split_first() else {
        if doubt {
            shell.opaque(GIT_PUSH);
        }
        return;
    };
    subcommand(shell, (sub, args), &settings, doubt);
}

fn subcommand(shell: &mut Shell, (sub, args): (&String, &[String]), settings: &Settings, doubt: bool) {
    if let Some(alias) = settings.get(&format!("alias.{}", sub.to_ascii_lowercase())).and_then(|all| all.last()) {
        return aliased(shell, alias, args);
    }
    match sub.as_str() {
        "push" | "send-pack" | "http-push" => push(shell, args, settings, doubt),
        "subtree" if args.iter().any(|arg| arg == "push") => push(shell, &args[1..], settings, doubt),
        "config" => config(shell, args),
        "submodule" | "bisect" | "rebase" | "filter-branch" | "difftool" | "mergetool" => handed_on(shell, args),
        own if OWN.split_whitespace().any(|known| known == own) => {}
        _ => shell.opaque(GIT_PUSH),
    }
}

/// An alias stands for other arguments, or for a shell line.
fn aliased(shell: &mut Shell, alias: &str, args: &[String]) {
    let Some(line) = alias.strip_prefix('!') else {
        let words = [&["git".to_owned()], &parted(alias)[..], args].concat();
        shell.run(&words, Stream::Nothing);
        return;
    };
    let quoted = args.iter().map(|arg| format!(" '{}'", arg.replace('\'', "'\\''")));
    shell.script(&format!("{line}{}", quoted.collect::<String>()), Stream::Nothing);
}

/// Subcommands that run other commands: `submodule foreach`, `bisect run`, `rebase --exec`.
fn handed_on(shell: &mut Shell, args: &[String]) {
    for (i, arg) in args.iter().enumerate() {
        match arg.as_str() {
            "foreach" | "run" | "--exec" | "-x" => {
                shell.script(&args[i + 1..].join(" "), Stream::Nothing);
            }
            _ if arg.contains(char::is_whitespace) => {
                let text = arg.split_once('=').filter(|_| arg.starts_with("--")).map_or(arg.as_str(), |(_, text)| text);
                shell.script(text, Stream::Nothing);
            }
            _ => {}
        }
    }
}

/// A setting that is written: what it makes of later pushes counts now, for they may be in another line.
fn config(shell: &mut Shell, args: &[String]) {
    let words: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-') && *arg != "set").collect();
    let [name, value, ..] = words[..] else { return };
    let name = name.to_ascii_lowercase();
    shell.git.entry(name.clone()).or_default().push(value.clone());
    if name.starts_with("alias.") {
        aliased(shell, value, &[]);
    } else if forces(&name, value) {
        effect(shell, &Push { force: true, ..Push::default() });
    }
}

/// Settings that come by environment variables. Answers whether some of them lie where we cannot look.
fn of_environment(shell: &Shell, settings: &mut Settings) -> bool {
    let names = ["GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG"];
    let is_elsewhere = |name: &&str| shell.vars.get(*name).is_some_and(|path| !path.is_empty() && path != "/dev/null");
    let mut doubt = names.iter().any(is_elsewhere);
    for (name, key) in &shell.vars {
        let Some(number) = name.strip_prefix("GIT_CONFIG_KEY_") else { continue };
        let value = shell.vars.get(&format!("GIT_CONFIG_VALUE_{number}")).cloned();
        doubt |= set(settings, &format!("{key}={}", value.unwrap_or_default()), false);
    }
    for word in shell.vars.get("GIT_CONFIG_PARAMETERS").map(|text| parted(text)).unwrap_or_default() {
        doubt |= set(settings, &word, false);
    }
    doubt
}

/// Keeps `name=value`. Answers whether it leads to settings that we cannot see.
fn set(settings: &mut Settings, text: &str, from_variable: bool) -> bool {
    let (name, value) = text.split_once('=').unwrap_or((text, "true"));
    let name = name.to_ascii_lowercase();
    let hidden = from_variable || text.contains(UNKNOWN) || name.starts_with("include");
    settings.entry(name).or_default().push(value.to_owned());
    hidden
}

/// Whether a setting makes pushes forced ones.
fn forces(name: &str, value: &str) -> bool {
    let of_remote = name.strip_prefix("remote.").and_then(|name| name.rsplit_once('.'));
    match of_remote {
        Some((_, "mirror")) => value != "false",
        Some((_, "push")) => value.starts_with('+'),
        _ => false,
    }
}

/// What a push does.
#[derive(Debug, Default)]
struct Push {
    force: bool,
    delete: bool,
    mirror: bool,
    /// Something in it is not known: there may be more force in it than is seen.
    doubt: bool,
    remote: Option<String>,
    branches: Option<Vec<String>>,
}

fn push(shell: &mut Shell, args: &[String], settings: &Settings, doubt: bool) {
    let mut push = Push { doubt, ..Push::default() };
    let (mut places, mut all) = (Vec::new(), false);
    let mut rest = args.iter();
    let mut options = true;
    while let Some(arg) = rest.next() {
        if arg.starts_with(UNKNOWN) || (arg.starts_with('-') && arg.contains(UNKNOWN)) {
            push.doubt = true;
        }
        match arg.as_str() {
            "--" => options = false,
            "-o" | "--push-option" | "--receive-pack" | "--exec" | "--recurse-submodules" | "--signed" if options => {
                rest.next();
            }
            "--repo" if options => places.extend(rest.next().cloned()),
            long if options && long.starts_with("--") => all |= long_option(&mut push, long),
            short if options && short.starts_with('-') && short.len() > 1 => {
                push.force |= short.contains('f');
                push.delete |= short.contains('d');
            }
            place => places.push(place.to_owned()),
        }
    }
    let mirrors = |(name, values): (&String, &Vec<String>)| {
        values.iter().any(|value| forces(name, value) && (name.ends_with(".mirror") || places.len() < 2))
    };
    push.force |= push.mirror || settings.iter().any(mirrors);
    if !places.is_empty() {
        push.remote =
            Some(places.remove(0)).filter(|remote| !remote.contains(UNKNOWN)).map(|remote| without_login(&remote));
    }
    refspecs(&mut push, &places, all);
    effect(shell, &push);
}

/// Long options can be shortened; so can what forces. Answers whether it names every branch.
fn long_option(push: &mut Push, option: &str) -> bool {
    let name = option.split('=').next().unwrap_or(option);
    let is = |whole: &str, least: usize| name.len() >= least && whole.starts_with(name);
    push.force |= name.starts_with("--force-w") || is("--force", "--fo".len());
    push.mirror |= is("--mirror", "--m".len());
    push.delete |= is("--delete", "--de".len()) || is("--prune", "--pru".len());
    is("--all", "--al".len()) || is("--branches", "--b".len()) || push.mirror
}

fn refspecs(push: &mut Push, specs: &[String], all: bool) {
    let mut branches = Vec::new();
    let mut known = !all && !specs.is_empty();
    for spec in specs {
        let plain = spec.strip_prefix('+');
        push.force |= plain.is_some();
        let plain = plain.unwrap_or(spec);
        push.delete |= plain.starts_with(':') && plain.len() > 1;
        let target = plain.split_once(':').map_or(plain, |(_, target)| target);
        let target = target.strip_prefix("refs/heads/").unwrap_or(target);
        known &= !target.is_empty() && !target.contains(UNKNOWN) && !["HEAD", "@"].contains(&target);
        branches.push(target.to_owned());
    }
    push.branches = Some(branches).filter(|_| known);
}

fn effect(shell: &mut Shell, push: &Push) {
    let mut values: BTreeMap<String, Value> = BTreeMap::new();
    for (name, is_so) in [("force", push.force), ("delete", push.delete), ("mirror", push.mirror)] {
        // What is not seen may be in the part that is not known.
        if is_so || !push.doubt {
            values.insert(name.to_owned(), is_so.into());
        }
    }
    values.insert("opaque".to_owned(), push.doubt.into());
    if let Some(remote) = &push.remote {
        values.insert("remote".to_owned(), remote.clone().into());
    }
    match push.branches.as_deref() {
        None => {}
        Some([branch]) => drop(values.insert("branch".to_owned(), branch.clone().into())),
        Some(branches) => drop(values.insert("branch".to_owned(), branches.into())),
    }
    shell.effect(GIT_PUSH, values);
}

/// An address without the name and password in it.
pub(super) fn without_login(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else { return address.to_owned() };
    let (place, path) = rest.split_once('/').map_or((rest, None), |(place, path)| (place, Some(path)));
    let host = place.rsplit('@').next().unwrap_or(place);
    path.map_or_else(|| format!("{scheme}://{host}"), |path| format!("{scheme}://{host}/{path}"))
}
