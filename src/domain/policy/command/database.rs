//! Finds statements that change a database in the command line of a client, and which database: production, if its name, host
//! or address says so.

use std::collections::BTreeMap;

use serde_json::Value;

use super::git::without_login;
use super::shell::{Shell, Stream};
use super::words::UNKNOWN;
use super::{DATABASE_WRITE, Language, Script};

const CLIENTS: [&str; 13] = [
    "psql",
    "pgcli",
    "mysql",
    "mariadb",
    "mycli",
    "sqlite3",
    "duckdb",
    "sqlcmd",
    "usql",
    "mongosh",
    "mongo",
    "cockroach",
    "clickhouse-client",
];

/// Programs that do nothing but change a database.
const WRITERS: [&str; 8] =
    ["dropdb", "createdb", "dropuser", "createuser", "pg_restore", "mysqlimport", "mongorestore", "mongoimport"];

/// Words of statements that change something, and of the clients' own commands.
const WRITING: [&str; 29] = [
    "insert",
    "update",
    "delete",
    "drop",
    "alter",
    "truncate",
    "create",
    "grant",
    "revoke",
    "replace",
    "merge",
    "upsert",
    "copy",
    "rename",
    "reindex",
    "import",
    "restore",
    "load",
    "call",
    "insertone",
    "insertmany",
    "updateone",
    "updatemany",
    "replaceone",
    "deleteone",
    "deletemany",
    "dropdatabase",
    "remove",
    "bulkwrite",
];

/// Options that are followed by a statement, by a file of statements, by a host, by a database.
const STATEMENT: [&str; 8] = ["-c", "--command", "-e", "--execute", "--eval", "-Q", "-q", "-cmd"];
const FILE: [&str; 4] = ["-f", "--file", "-i", "-init"];
const HOST: [&str; 4] = ["-h", "--host", "-S", "--url"];
const DATABASE: [&str; 5] = ["-d", "-D", "--dbname", "--database", "--db"];

/// Whether a program is a client of a database.
pub(super) fn is_client(name: &str) -> bool {
    CLIENTS.contains(&name) || WRITERS.contains(&name) || name == "mysqladmin"
}

/// What a client is told.
#[derive(Debug, Default)]
struct Told {
    statements: Vec<String>,
    files: Vec<String>,
    /// Where it connects to: hosts, addresses, names of databases.
    host: Option<String>,
    database: Option<String>,
    places: Vec<String>,
}

/// A client with its arguments.
pub(super) fn run(shell: &mut Shell, (client, args): (&str, &[String]), stdin: &Stream) {
    let mut told = told(client, args);
    of_environment(shell, client, &mut told);
    let connection = connection(client, &told);
    let admin = client == "mysqladmin" && args.iter().any(|arg| arg == "drop" || arg == "create");
    if WRITERS.contains(&client) || admin {
        return write(shell, &connection, false);
    }
    let mut text = told.statements.join(";\n");
    let reads_stdin = told.statements.is_empty() && told.files.is_empty();
    match stdin {
        _ if !reads_stdin => {}
        Stream::Nothing => {}
        stream => match (shell.text(stream), stream) {
            (Some(known), _) => text = known,
            (None, Stream::File(path)) => told.files.push(path.clone()),
            (None, _) => write(shell, &connection, true),
        },
    }
    statements(shell, &text, &connection);
    for path in told.files {
        if path.contains(UNKNOWN) {
            write(shell, &connection, true);
        } else {
            shell.execute(Script { path, language: Language::Sql(connection.clone()) });
        }
    }
}

/// Statements for a connection.
pub(super) fn statements(shell: &mut Shell, text: &str, connection: &BTreeMap<String, Value>) {
    if text.contains(UNKNOWN) {
        write(shell, connection, true);
    } else if words(text).iter().any(|word| WRITING.contains(&word.as_str())) {
        write(shell, connection, false);
    }
}

fn write(shell: &mut Shell, connection: &BTreeMap<String, Value>, opaque: bool) {
    let mut values = connection.clone();
    values.insert("opaque".to_owned(), opaque.into());
    shell.effect(DATABASE_WRITE, values);
}

fn told(client: &str, args: &[String]) -> Told {
    let mut told = Told::default();
    let mut rest = args.iter();
    let mut bare = 0;
    while let Some(arg) = rest.next() {
        let (name, glued) = match arg.split_once('=').filter(|_| arg.starts_with("--")) {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (arg.as_str(), None),
        };
        let mut value = || glued.clone().or_else(|| rest.next().cloned()).unwrap_or_default();
        if STATEMENT.contains(&name) {
            told.statements.push(value());
        } else if FILE.contains(&name) {
            told.files.push(value());
        } else if HOST.contains(&name) {
            place(&mut told, value());
        } else if DATABASE.contains(&name) {
            database(&mut told, value());
        } else if let Some(statement) = arg.strip_prefix("-e").filter(|_| client.starts_with(['m', 'c'])) {
            told.statements.push(statement.to_owned());
        } else if name.starts_with('-') {
            told.places.extend(glued);
        } else {
            bare += 1;
            let file_based = ["sqlite3", "duckdb"].contains(&client);
            if (file_based && bare > 1) || (!file_based && arg.contains(char::is_whitespace) && !arg.contains('=')) {
                told.statements.push(arg.clone());
            } else if arg.contains("://") || arg.contains('=') {
                place(&mut told, arg.clone());
            } else {
                database(&mut told, arg.clone());
            }
        }
    }
    told
}

fn database(told: &mut Told, text: String) {
    if text.contains("://") || text.contains('=') {
        return place(told, text);
    }
    told.places.push(text.clone());
    told.database.get_or_insert(text);
}

/// A host, an address, or `host=… dbname=…`.
fn place(told: &mut Told, text: String) {
    let plain = without_login(&text);
    if let Some((_, rest)) = plain.split_once("://") {
        let (host, name) = rest.split_once('/').unwrap_or((rest, ""));
        told.host = Some(host.split(':').next().unwrap_or(host).to_owned());
        told.database = Some(name.split('?').next().unwrap_or(name).to_owned()).filter(|name| !name.is_empty());
    } else if text.contains('=') {
        for (name, value) in text.split_whitespace().filter_map(|part| part.split_once('=')) {
            match name {
                "host" | "hostaddr" | "service" => told.host = Some(value.to_owned()),
                "dbname" => told.database = Some(value.to_owned()),
                _ => {}
            }
        }
    } else {
        told.host = Some(text);
    }
    told.places.push(plain);
}

/// What clients read from their environment.
fn of_environment(shell: &Shell, client: &str, told: &mut Told) {
    let (hosts, databases): (&[&str], &[&str]) = match client {
        "psql" | "pgcli" | "dropdb" | "createdb" | "pg_restore" => {
            (&["PGHOST", "PGHOSTADDR", "PGSERVICE"], &["PGDATABASE"])
        }
        "mysql" | "mariadb" | "mycli" | "mysqladmin" => (&["MYSQL_HOST"], &[]),
        "cockroach" => (&["COCKROACH_URL", "COCKROACH_HOST"], &["COCKROACH_DATABASE"]),
        _ => (&[], &[]),
    };
    let find = |names: &[&str]| names.iter().find_map(|name| shell.vars.get(*name).cloned());
    if told.host.is_none()
        && let Some(host) = find(hosts)
    {
        place(told, host);
    }
    if told.database.is_none()
        && let Some(name) = find(databases)
    {
        database(told, name);
    }
}

fn connection(client: &str, told: &Told) -> BTreeMap<String, Value> {
    let known = |text: &Option<String>| text.clone().filter(|text| !text.contains(UNKNOWN)).map(Value::from);
    let values = [
        ("client", Some(Value::from(client))),
        ("host", known(&told.host)),
        ("database", known(&told.database)),
        ("environment", environment(told).map(Value::from)),
    ];
    values.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// `None` where it cannot be told.
fn environment(told: &Told) -> Option<&'static str> {
    if told.places.iter().any(|text| is_production(text)) {
        return Some("production");
    }
    if told.places.iter().any(|text| text.contains(UNKNOWN) || text.contains("service=")) {
        return None;
    }
    let is_local = |host: &str| ["localhost", "127.0.0.1", "::1", ""].contains(&host) || host.starts_with('/');
    Some(if told.host.as_deref().is_none_or(is_local) { "local" } else { "other" })
}

/// Whether a host, an address or a name says that it is production.
pub(super) fn is_production(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let mut words = lower.split(|c: char| !c.is_ascii_alphanumeric());
    words.any(|word| {
        ["production", "prd"].contains(&word)
            || word.ends_with("prod")
            || (word.starts_with("prod") && !word.starts_with("produ"))
    })
}

/// Whether the text of a program has a statement in it that writes: two words that belong together.
pub(super) fn mentions_write(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let words: Vec<&str> =
        lower.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|w| !w.is_empty()).collect();
    let pair = |pair: &[&str]| match (pair[0], pair[1]) {
        ("insert", "into") | ("delete", "from") | ("truncate", "table") => true,
        ("drop" | "alter", kind) => ["table", "database", "schema", "index", "view", "role", "user"].contains(&kind),
        _ => false,
    };
    words.windows(2).any(pair) || words.windows(4).any(|four| four[0] == "update" && four[1..].contains(&"set"))
}

/// The words of statements in lower case, without what stands in quotes or comments.
fn words(text: &str) -> Vec<String> {
    let mut plain = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('\'', _) => {
                while chars.next().is_some_and(|c| c != '\'') {}
                plain.push(' ');
            }
            ('-', Some('-')) => while chars.next().is_some_and(|c| c != '\n') {},
            // What MySQL runs all the same: `/*! … */`.
            ('/', Some('*')) => {
                chars.next();
                if chars.peek() != Some(&'!') {
                    let mut last = ' ';
                    while let Some(c) = chars.next().filter(|c| !(last == '*' && *c == '/')) {
                        last = c;
                    }
                }
            }
            (c, _) => plain.push(c),
        }
    }
    let parts = plain.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|part| !part.is_empty());
    parts.map(str::to_ascii_lowercase).collect()
}
