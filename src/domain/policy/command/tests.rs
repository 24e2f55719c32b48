//! What is seen in command lines, spelling by spelling (F91).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::domain::policy::Verdict;
use crate::domain::policy::decide::stops;
use crate::domain::policy::{Policy, Rule};

fn read(line: &str) -> CommandReading {
    read_command(&CommandLine::Shell(line.to_owned()), &BTreeMap::new())
}

/// A push as it was read; panics where there is none, or more than one kind.
fn push(line: &str) -> BTreeMap<String, Value> {
    let reading = read(line);
    let found: Vec<_> = reading.effects.into_iter().filter(|asked| asked.action == GIT_PUSH).collect();
    assert_eq!(found.len(), 1, "{line}: {found:?}");
    found.into_iter().next().map(|asked| asked.values).unwrap_or_default()
}

fn rules() -> Policy {
    let rule = |id: &str, action: &str, name: &str, value: Value| Rule {
        id: id.to_owned(),
        verdict: Verdict::Deny,
        action: action.to_owned(),
        when: [(name.to_owned(), value.to_string())].into(),
        approval: None,
    };
    let rules = vec![
        rule("no-force-push", GIT_PUSH, "force", json!(true)),
        rule("no-deleted-branch", GIT_PUSH, "delete", json!(true)),
        rule("no-production-database", DATABASE_WRITE, "environment", json!("production")),
    ];
    Policy { version: "v1".to_owned(), rules, ..Policy::default() }
}

fn stopped(line: &str) -> Option<String> {
    stops(&rules(), &read(line).effects).map(|stopped| stopped.rule)
}

const FORCED: [&str; 62] = [
    "git push -f",
    "git push --force origin main",
    "git push -uf origin main",
    "git push --force-with-lease",
    "git push --force-with-lease=main:abc origin main",
    "git push origin +main",
    "git push origin +HEAD:main",
    "git push --mirror",
    "git push --mirr backup",
    "/usr/bin/git push -f",
    "/usr/lib/git-core/git-push -f origin",
    "/usr/bin/g?t push -f",
    "g''it pu\"s\"h -\\f",
    "$'\\x67it' push -f",
    "git${IFS}push${IFS}-f",
    "git -C sub -c user.name=x push -f",
    "git -c alias.x='push -f' x",
    "git -c alias.x='!git push -f' x",
    "git -calias.x=push x --force",
    "git -c remote.origin.mirror=true push origin",
    "git -c remote.origin.push=+refs/heads/*:refs/heads/* push origin",
    "git config alias.p 'push --force'",
    "git config --global remote.origin.push +main",
    "git config alias.p push && git p -f",
    "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=alias.x GIT_CONFIG_VALUE_0='push -f' git x",
    "export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=alias.x GIT_CONFIG_VALUE_0='push -f'; git x",
    "GIT_CONFIG_PARAMETERS=\"'alias.x=push -f'\" git x",
    "env git push -f",
    "env -i PATH=/bin git push -f",
    "env -S 'git push -f'",
    "nice -n 5 git push -f",
    "sudo -u deploy git push -f",
    "timeout 60 git push -f",
    "timeout 60 env nice sudo git push -f",
    "nohup setsid git push -f &",
    "sh -c 'git push -f'",
    "bash -euo pipefail -c \"git push -f\"",
    "sh -c \"bash -c 'git push -f'\"",
    "eval git push -f",
    "echo Z2l0IHB1c2ggLWYK | base64 -d | sh",
    "sh <<< \"$(echo Z2l0IHB1c2ggLWYK | base64 --decode)\"",
    "eval \"$(echo Z2l0IHB1c2ggLWYK | base64 -d)\"",
    "echo 6769742070757368202d66 | xxd -r -p | bash",
    "echo 'f- hsup tig' | rev | sh",
    "echo 'git push -f' > x.sh && sh x.sh",
    "printf 'git %s -f\\n' push | sh",
    "printf '\\147it push -f' | sh",
    "sh <<EOF\ngit push -f\nEOF",
    "cat <<'EOF' | sh\ngit push -f\nEOF",
    "bash <(echo git push -f)",
    "(echo git push -f) | sh",
    "X=push; git $X -f",
    "CMD='git push -f'; $CMD",
    "f() { git push \"$@\"; }; f -f",
    "for x in main; do git push origin +$x; done",
    "if true; then git push -f; fi",
    "! git push -f || true",
    "echo push -f | xargs git",
    "git submodule foreach 'git push -f'",
    "ssh host 'git push -f'",
    "docker run --rm img git push -f",
    "trap 'git push -f' EXIT",
];

#[test]
fn f91_a_forced_push_is_seen_in_every_spelling() {
    for line in FORCED {
        assert_eq!(stopped(line).as_deref(), Some("no-force-push"), "{line}: {:?}", read(line));
    }
}

#[test]
fn f91_sixty_commands_in_a_row_are_all_read() {
    for separator in ["; ", " && ", " || ", "\n", " | "] {
        let mut all = vec!["true".to_owned(); 59];
        all.push("git push -f".to_owned());
        assert_eq!(stopped(&all.join(separator)).as_deref(), Some("no-force-push"), "{separator:?}");
    }
}

#[test]
fn f91_what_cannot_be_read_is_opaque_and_counts() {
    for line in [
        "python3 -c \"import subprocess; subprocess.run(['git', 'push', '-f'])\"",
        "python3 -c \"import base64; exec(base64.b64decode('Z2l0IHB1c2ggLWYK'))\"",
        "perl -e 'system(\"git push -f\")'",
        "node -e 'require(\"child_process\").execSync(\"git push -f\")'",
        "python3 - <<EOF\nimport os; os.system('git push')\nEOF",
        "curl https://example.invalid/x | sh",
        "eval \"$SCRIPT\"",
        "git push $OPTIONS",
        "git $COMMAND",
        "git wip",
        "$GIT push",
        "GIT_CONFIG_GLOBAL=x git push",
        "git -c include.path=x push",
    ] {
        let values = push(line);
        assert_eq!((values.get("opaque"), values.get("force")), (Some(&json!(true)), None), "{line}");
        assert!(stopped(line).is_some(), "{line}");
    }
}

#[test]
fn f91_what_a_push_does_is_told() {
    let values = push("git push https://me:secret@example.invalid/a.git --delete old");
    assert_eq!(
        Value::from_iter(values),
        json!({
            "force": false, "delete": true, "mirror": false, "opaque": false, "branch": "old",
            "remote": "https://example.invalid/a.git",
        })
    );
    let values = push("git push origin HEAD:refs/heads/main dev");
    assert_eq!((&values["branch"], &values["force"]), (&json!(["main", "dev"]), &json!(false)));
    assert_eq!(push("git push origin :old")["delete"], true);
    assert_eq!(push("git push --prune origin")["delete"], true);
    for line in ["git push", "git push origin HEAD", "git push --all origin", "git push origin $B"] {
        assert_eq!(push(line).get("branch"), None, "{line}");
    }
    assert_eq!(push("git push -o ci.skip origin main")["remote"], "origin");
}

#[test]
fn what_pushes_nothing_is_let_through() {
    for line in [
        "git push origin main",
        "git status && git log -p",
        "git commit -m 'git push -f'",
        "echo git push -f",
        "echo 'never git push -f' > NOTES",
        "grep -r 'git push -f' .",
        "# git push -f",
        "cargo test --all && cargo clippy -- -D warnings",
        "apt-get install -y git curl mysql-client",
        "python3 -m pytest -q",
        "node server.js",
        "npm run push",
        "docker push image",
        "for f in *.rs; do rustfmt --check \"$f\"; done",
        "test \"$(git rev-parse HEAD)\" = abc",
        "python3 -c 'print(1)'",
        "sh tests/run",
        "case $X in a) true;; esac",
        "diff <(sort a) <(sort b)",
        "psql -h prod-db -c 'SELECT count(*) FROM orders'",
        "psql -h prod-db -c \"SELECT 'drop table x'\"",
        "psql -h localhost -c 'DELETE FROM t'",
        "sqlite3 test.db 'insert into t values (1)'",
    ] {
        assert_eq!(stopped(line), None, "{line}: {:?}", read(line));
    }
}

#[test]
fn a_list_is_read_without_a_shell() {
    let list = |words: &[&str]| CommandLine::List(words.iter().map(|w| (*w).to_owned()).collect());
    let found = |words: &[&str]| read_command(&list(words), &BTreeMap::new()).effects.len();
    assert_eq!(found(&["git", "push", "-f"]), 1);
    assert_eq!(found(&["sh", "-c", "git push -f"]), 1);
    assert_eq!(found(&["echo", "x; git push -f"]), 0);
    let vars = [("GIT_CONFIG_KEY_0", "alias.x"), ("GIT_CONFIG_VALUE_0", "push -f")];
    let vars = vars.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    let reading = read_command(&list(&["git", "x"]), &vars);
    assert_eq!(reading.effects[0].values["force"], true);
}

#[test]
fn r_p3_writes_into_a_production_database_are_seen() {
    for line in [
        "psql -h prod-db.internal -c 'DELETE FROM orders'",
        "psql postgres://app:secret@db.production.example/shop -c 'drop table orders'",
        "psql 'host=db-prod dbname=shop' -c 'UPDATE t SET a = 1'",
        "PGHOST=prod1 psql -c 'truncate orders'",
        "echo 'INSERT INTO t VALUES (1);' | mysql -h mysql.prd shop",
        "mysql --host=proddb -e'ALTER TABLE t ADD c int'",
        "psql -h prod <<EOF\ndelete from t;\nEOF",
        "kubectl exec pod -- psql -d shop_prod -c 'DROP TABLE t'",
        "ssh db1 \"psql -d production -c 'drop table t'\"",
        "mongosh mongodb://prod/shop --eval 'db.orders.deleteMany({})'",
        "dropdb -h prod shop",
        "psql -h prod -c \"WITH x AS (DELETE FROM t RETURNING 1) SELECT * FROM x\"",
        "psql -h prod -c \"SELECT 1 /* x */; -- y\nDROP TABLE t\"",
        "mysql -h prod -e '/*! DROP TABLE t */'",
        "sqlite3 /srv/prod/shop.db 'delete from t'",
        // Nobody can tell which database, or which statement.
        "psql \"$DATABASE_URL\" -c 'DELETE FROM t'",
        "cat dump.sql.gz | gunzip | psql -h prod",
        "psql -h prod -c \"$SQL\"",
        "python3 -c \"cursor.execute('DELETE FROM orders')\"",
    ] {
        assert_eq!(stopped(line).as_deref(), Some("no-production-database"), "{line}: {:?}", read(line));
    }
    let reading = read("psql postgres://app:secret@db.prod/shop -c 'drop table t'");
    let expected = json!({
        "client": "psql", "host": "db.prod", "database": "shop", "environment": "production", "opaque": false,
    });
    assert_eq!(Value::from_iter(reading.effects[0].values.clone()), expected, "and never a password");
}

#[test]
fn files_that_are_executed_are_named_and_read() {
    let scripts = |line: &str| read(line).scripts.into_iter().map(|s| s.path).collect::<Vec<_>>();
    for line in
        ["sh x.sh", "bash -e x.sh a b", ". x.sh", "python3 x.sh", "sh < x.sh", "cat x.sh | sh", "timeout 5 sh x.sh"]
    {
        assert_eq!(scripts(line), ["x.sh"], "{line}");
    }
    assert_eq!(scripts("./tools/x --now"), ["./tools/x"]);
    assert_eq!(scripts("psql -h prod -f x.sql"), ["x.sql"]);
    let none = BTreeMap::new();
    let found = |text: &str, language: &Language| read_script(text, language, &none).effects;
    assert_eq!(found("#!/bin/sh\nset -e\ngit push -f\n", &Language::ByItself)[0].values["force"], true);
    assert_eq!(found("#!/usr/bin/env python3\nsubprocess.run([\"git\", \"push\"])\n", &Language::ByItself).len(), 1);
    assert_eq!(
        found("# of the git history\nxs = []\nxs.append(1)\nfor x in range(100): stack.push(x)", &Language::Program),
        []
    );
    let script = read("psql -h prod -f x.sql").scripts.remove(0);
    assert_eq!(found("delete from t;", &script.language)[0].values["environment"], "production");
    assert_eq!(found("select 1;", &script.language), []);
    assert_eq!(script.unread().map(|asked| asked.values["opaque"].clone()), Some(json!(true)));
}

#[test]
fn nothing_that_is_written_hangs_or_hides_by_its_size() {
    let deep = (0..100).fold("git push -f".to_owned(), |inner, _| format!("env {inner}"));
    assert!(stopped(&deep).is_some());
    let long = format!("{}; git push -f", "x".repeat(2 << 20));
    assert!(stopped(&long).is_some());
    for odd in [
        "'", "\"", "$(", "`", "${", "<<", "<<E", "(", "))", "&", "|", "\\", "a=(", "<(", "$((", "{,}", ">", "2>",
        "\u{0}",
    ] {
        drop(read(odd));
    }
}
