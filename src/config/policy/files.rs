//! The policy file and its includes, read each by itself and laid over each other. Meaning comes later.

use super::super::check::{inner_path, refused};
use super::super::error::ConfigError;
use super::super::source::Source;
use super::POLICY_FILE;
use super::raw::RawPolicy;
use crate::domain::hash::encoding::Sha256Hash;
use crate::yaml::Document;

/// More files than any real policy has.
const MAX_FILES: usize = 32;

/// Lists that the including file continues.
const APPENDED: &[&str] = &["rules"];

/// Every file of a policy.
pub(super) struct PolicyFiles {
    pub(super) merged: Document,
    pub(super) sources: Vec<(String, Sha256Hash)>,
}

/// Reads the policy file and everything it includes; `None` when there is no policy file.
pub(super) fn read_all(source: &dyn Source) -> Result<Option<PolicyFiles>, ConfigError> {
    let Some(bytes) = source.read(POLICY_FILE)? else {
        return refuse_misnamed(source).map(|()| None);
    };
    let mut reader = Reader { source, sources: Vec::new(), open: Vec::new() };
    let root = Document::read(POLICY_FILE, &bytes)?;
    // Known keys first: who writes `verison` should read about that.
    root.deserialize::<RawPolicy>()?;
    // The version names the content as a whole, so the first file has to say it.
    if root.root().entry("version").is_none() {
        return Err(refused(&root, &[], "missing key `version`"));
    }
    let merged = reader.with_includes(POLICY_FILE, &bytes, root)?;
    Ok(Some(PolicyFiles { merged, sources: reader.sources }))
}

/// A policy that is there under the wrong name would silently not hold.
fn refuse_misnamed(source: &dyn Source) -> Result<(), ConfigError> {
    for name in ["automation-policy.yaml", "automation_policy.yml"] {
        if source.read(name)?.is_some() {
            return Err(ConfigError::unreadable(name, format!("the policy file is named {POLICY_FILE}")));
        }
    }
    Ok(())
}

struct Reader<'s> {
    source: &'s dyn Source,
    sources: Vec<(String, Sha256Hash)>,
    /// The files that include each other down to this one.
    open: Vec<String>,
}

impl Reader<'_> {
    /// A file with its includes below it. A file that was read before, on another way, is not laid over twice.
    fn with_includes(&mut self, path: &str, bytes: &[u8], doc: Document) -> Result<Document, ConfigError> {
        // Read alone first, so that a wrong key or value is named in its own file.
        doc.deserialize::<RawPolicy>()?;
        self.open.push(path.to_owned());
        let mut merged: Option<Document> = None;
        let includes = doc.root().entry("include").map_or(0, |e| e.value.items().len());
        for i in 0..includes {
            if let Some(included) = self.include(&doc, i)? {
                merged = Some(match merged {
                    Some(base) => base.overlaid(included, APPENDED),
                    None => included,
                });
            }
        }
        self.open.pop();
        self.sources.push((path.to_owned(), Sha256Hash::of(bytes)));
        let own = doc.without(&["include"]);
        Ok(match merged {
            Some(base) => base.overlaid(own, APPENDED),
            None => own,
        })
    }

    fn include(&mut self, doc: &Document, index: usize) -> Result<Option<Document>, ConfigError> {
        let at = ["include".into(), index.into()];
        let refuse = |message: String| refused(doc, &at, message);
        let path = inner_path(doc.text(&at).unwrap_or_default()).map_err(refuse)?;
        if self.open.contains(&path) {
            let chain = self.open.iter().map(String::as_str).chain([path.as_str()]).collect::<Vec<_>>();
            return Err(refuse(format!("the files include each other: {}", chain.join(" → "))));
        }
        if self.sources.iter().any(|(read, _)| *read == path) {
            return Ok(None);
        }
        if self.sources.len() + self.open.len() >= MAX_FILES {
            return Err(refuse(format!("a policy has at most {MAX_FILES} files")));
        }
        let bytes = self.source.read(&path)?.ok_or_else(|| refuse(format!("there is no file `{path}`")))?;
        let included = Document::read(&path, &bytes)?;
        self.with_includes(&path, &bytes, included).map(Some)
    }
}
