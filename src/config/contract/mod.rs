//! Contract files: what a provider guarantees about one endpoint (R-A8). Read strictly, from where the policy is read; what a
//! file does not say is taken to be the most careful thing. A secret never stands in a file: it is named by the variable that
//! holds it.

mod channel;
mod raw;

use std::collections::BTreeMap;

use super::check::{refused, refused_key, version};
use super::error::ConfigError;
use super::fields::Field;
use super::source::Source;
use crate::domain::action::Contract;
use crate::domain::action::contract::{Automatic, Channel, Dedupe, Environment, Find, Meaning, Query};
use crate::domain::action::wording::Saying;
use crate::domain::hash::encoding::Sha256Hash;
use crate::yaml::{Document, Seg};
use channel::{Place, pointer, said};
use raw::{RawContract, RawFind, RawQuery};

/// Where contracts are.
pub const FOLDER: &str = "policies/contracts";

/// Reads every contract of a repository, by name. A broken one is an error, whoever would have used it.
pub fn load_contracts(source: &dyn Source) -> Result<BTreeMap<String, Contract>, ConfigError> {
    let mut contracts = BTreeMap::new();
    for file in source.list(FOLDER)? {
        let path = format!("{FOLDER}/{file}");
        if file.strip_suffix(".yaml").is_some() {
            return Err(ConfigError::unreadable(&path, "a contract is named with the ending .yml"));
        }
        let Some(name) = file.strip_suffix(".yml") else { continue };
        let bytes = source.read(&path)?.ok_or_else(|| ConfigError::unreadable(&path, "there is no such file"))?;
        contracts.insert(name.to_owned(), load_contract(&path, &bytes)?);
    }
    Ok(contracts)
}

/// Reads one contract. Its name is that of the file.
pub fn load_contract(path: &str, bytes: &[u8]) -> Result<Contract, ConfigError> {
    let doc = Document::read(path, bytes)?;
    let raw: RawContract = doc.deserialize()?;
    let file = path.rsplit('/').next().unwrap_or(path);
    let name = file.strip_suffix(".yml").unwrap_or(file);
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
        return Err(ConfigError::unreadable(
            path,
            format!("`{name}` is no name of a contract: use letters, digits, `-`"),
        ));
    }
    let mut contract = resolve(&doc, name, raw)?;
    contract.sha256 = Sha256Hash::of(bytes).hex();
    whole(&doc, &contract)?;
    Ok(contract)
}

/// The file over the most careful values.
fn resolve(doc: &Document, name: &str, raw: RawContract) -> Result<Contract, ConfigError> {
    version(&raw.version).map_err(|message| refused(doc, &["version".into()], message))?;
    let or = |own: Option<bool>| own.unwrap_or(false);
    let send = Place { doc, at: vec!["send".into()], saying: Saying::Send };
    let send = raw.send.map(|raw| send.channel(raw)).transpose()?;
    let (key_header, key_lifetime) = raw.key.map_or((None, None), |key| (key.header, key.lifetime.map(|f| f.0)));
    Ok(Contract {
        version: raw.version,
        environment: raw.environment.map_or(Environment::Live, |f| f.0),
        account: raw.account,
        actions: raw.actions.into_iter().map(|field| field.0).collect(),
        dedupe: raw.dedupe.map_or(Dedupe::None, |f| f.0),
        key_header,
        key_lifetime,
        automatic: raw.automatic.map_or(Automatic::Send, |f| f.0),
        irreversible: or(raw.irreversible),
        answers: answers(doc, raw.answers, send.as_ref())?,
        reference: pointer(doc, &["reference".into()], raw.reference)?,
        explanation: pointer(doc, &["message".into()], raw.message)?,
        look_first: or(raw.look_first),
        atomic: or(raw.atomic),
        query: raw.query.map(|query| self::query(doc, query)).transpose()?,
        send,
        ..Contract::careful(name)
    })
}

/// Statuses of HTTP, or exit codes of a command.
fn answers(
    doc: &Document,
    raw: BTreeMap<String, Field<Meaning>>,
    send: Option<&Channel>,
) -> Result<BTreeMap<u16, Meaning>, ConfigError> {
    let (known, what) = match send {
        Some(Channel::Http(_)) => (200..=599, "a status of HTTP"),
        _ => (0..=255, "an exit code"),
    };
    let mut answers = BTreeMap::new();
    for (text, meaning) in raw {
        let code = text.parse().ok().filter(|code| known.contains(code));
        let code = code.ok_or_else(|| {
            refused_key(doc, &["answers".into(), text.as_str().into()], format!("`{text}` is not {what}"))
        })?;
        answers.insert(code, meaning.0);
    }
    Ok(answers)
}

fn query(doc: &Document, raw: RawQuery) -> Result<Query, ConfigError> {
    let place = Place { doc, at: vec!["query".into()], saying: Saying::Ask };
    let channel = place.channel(raw::RawChannel { http: raw.http, run: raw.run })?;
    let http = matches!(channel, Channel::Http(_));
    if let (false, Some(key)) =
        (http, [(raw.find.is_some(), "find"), (!raw.absent.is_empty(), "absent")].iter().find(|(is, _)| *is))
    {
        let message = format!("`{}` reads the answer to `http`; a command says itself what it found", key.1);
        return Err(refused_key(doc, &["query".into(), key.1.into()], message));
    }
    if http && raw.find.is_none() {
        return Err(refused(
            doc,
            &["query".into()],
            "missing key `find`: by what in the answer is it told to be ours?",
        ));
    }
    let mut absent = Vec::new();
    for (i, text) in raw.absent.iter().enumerate() {
        let status = text.parse().ok().filter(|status| (400..=499).contains(status));
        let at: [Seg<'_>; 3] = ["query".into(), "absent".into(), i.into()];
        absent.push(status.ok_or_else(|| refused(doc, &at, format!("`{text}` is not a status from 400 to 499")))?);
    }
    Ok(Query { channel, settle: raw.settle.0, find: raw.find.map(|find| self::find(doc, find)).transpose()?, absent })
}

fn find(doc: &Document, raw: RawFind) -> Result<Find, ConfigError> {
    let at = |key: &'static str| -> [Seg<'_>; 3] { ["query".into(), "find".into(), key.into()] };
    let list = pointer(doc, &at("list"), raw.list)?.unwrap_or_default();
    let more = pointer(doc, &at("more"), raw.more)?;
    for (key, fields) in [("equals", &raw.equals), ("contains", &raw.contains)] {
        for (field, template) in fields {
            let at = [at(key).as_slice(), &[field.as_str().into()]].concat();
            pointer(doc, &at, Some(field.clone()))?;
            said(doc, &at, template, Saying::Ask)?;
        }
    }
    if !list.is_empty() && raw.equals.is_empty() && raw.contains.is_empty() {
        let message = "a list needs `equals` or `contains`: by what is one of its objects told to be ours?";
        return Err(refused(doc, &["query".into(), "find".into()], message));
    }
    let state = match raw.state {
        None => None,
        Some(raw) => {
            let at_state = |key: &'static str| [at("state").as_slice(), &[Seg::Key(key)]].concat();
            let pointer = pointer(doc, &at_state("at"), Some(raw.at))?.unwrap_or_default();
            let known = [Meaning::Succeeded, Meaning::InProgress, Meaning::Refused];
            if let Some((word, _)) = raw.words.iter().find(|(_, meaning)| !known.contains(&meaning.0)) {
                let at = [at_state("words"), vec![word.as_str().into()]].concat();
                return Err(refused(doc, &at, "a state means `succeeded`, `in_progress` or `refused`"));
            }
            Some((pointer, raw.words.into_iter().map(|(word, meaning)| (word, meaning.0)).collect()))
        }
    };
    Ok(Find { list, more, equals: raw.equals, contains: raw.contains, state })
}

/// What can only be said of the whole: keys that mean nothing without another.
fn whole(doc: &Document, contract: &Contract) -> Result<(), ConfigError> {
    let key = |key: &'static str, message: &str| Err(refused_key(doc, &[key.into()], message));
    let keyed = contract.key_header.is_some() || contract.key_lifetime.is_some();
    if keyed && contract.dedupe != Dedupe::Key {
        return key("key", "`key` needs `dedupe: key`: otherwise nobody knows a repeat by it");
    }
    let http = match &contract.send {
        Some(Channel::Http(http)) => Some(http),
        _ => None,
    };
    if http.is_none() && contract.key_header.is_some() {
        return Err(refused_key(doc, &["key".into(), "header".into()], "a header needs `send: { http: … }`"));
    }
    if let (Some(http), Some(header)) = (http, &contract.key_header) {
        let taken = http.headers.keys().chain(http.secret_headers.keys()).any(|name| name.eq_ignore_ascii_case(header));
        let message = match channel::own_header(header) {
            Err(message) => Some(message),
            Ok(()) => taken.then(|| format!("the header `{header}` stands here twice")),
        };
        if let Some(message) = message {
            return Err(refused(doc, &["key".into(), "header".into()], message));
        }
    }
    if let (Some(http), Dedupe::Key, None) = (http, contract.dedupe, &contract.key_header)
        && !channel::names_key(http)
    {
        return key("dedupe", "`dedupe: key`, and the key is not sent: name `key: { header: … }`, or use {{ key }}");
    }
    if contract.look_first && contract.query.is_none() {
        return key("look_first", "`look_first` needs a `query`");
    }
    if contract.atomic && http.is_some() {
        return key("atomic", "`atomic` is said of a command; an HTTP request that broke off may have arrived");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
