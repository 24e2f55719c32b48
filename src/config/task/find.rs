//! From what is typed after `start` to a task file: a path, or the id that stands in one of `tasks/*.yml`.

use super::super::check::inner_path;
use super::super::error::ConfigError;
use super::super::source::Source;
use crate::yaml::{Document, nearest};

/// Where task files are looked for.
pub const TASKS_FOLDER: &str = "tasks";

/// A task file that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundTask {
    /// Its path, relative to the repository.
    pub path: String,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// What the files of the folder say.
#[derive(Default)]
struct Folder {
    /// Id and file.
    tasks: Vec<(String, FoundTask)>,
    /// Files whose id cannot be read.
    broken: Vec<(FoundTask, ConfigError)>,
}

/// Finds a task by its id (without regard to case) or by its path.
pub fn find_task(source: &dyn Source, wanted: &str) -> Result<FoundTask, ConfigError> {
    if wanted.contains('/') || is_named(wanted, "yml") || is_named(wanted, "yaml") {
        return by_path(source, wanted);
    }
    let folder = read_folder(source)?;
    let mut same = folder.tasks.iter().filter(|(id, _)| id.eq_ignore_ascii_case(wanted));
    match (same.next(), same.next()) {
        (Some((_, task)), None) => Ok(task.clone()),
        (Some((_, one)), Some((_, two))) => {
            let message = format!("task `{wanted}` stands also in {}; ids are unique, whatever their case", one.path);
            let place = Document::read(&two.path, &two.bytes)?;
            Err(place.error(place.at(&["task".into()]), message).into())
        }
        _ => Err(not_found(wanted, folder)),
    }
}

fn is_named(name: &str, extension: &str) -> bool {
    std::path::Path::new(name).extension().is_some_and(|e| e == extension)
}

fn by_path(source: &dyn Source, wanted: &str) -> Result<FoundTask, ConfigError> {
    let path = inner_path(wanted).map_err(|message| ConfigError::not_found(format!("no task file: {message}")))?;
    let bytes = source.read(&path)?.ok_or_else(|| ConfigError::not_found(format!("there is no task file `{path}`")))?;
    Ok(FoundTask { path, bytes })
}

fn read_folder(source: &dyn Source) -> Result<Folder, ConfigError> {
    let mut folder = Folder::default();
    for name in source.list(TASKS_FOLDER)?.into_iter().filter(|name| is_named(name, "yml")) {
        let path = format!("{TASKS_FOLDER}/{name}");
        match source.read(&path).map(Option::unwrap_or_default) {
            Err(e) => folder.broken.push((FoundTask { path, bytes: Vec::new() }, e)),
            Ok(bytes) => folder.add(FoundTask { path, bytes }),
        }
    }
    Ok(folder)
}

impl Folder {
    fn add(&mut self, task: FoundTask) {
        match Document::read(&task.path, &task.bytes) {
            Ok(doc) => {
                let id = doc.text(&["task".into()]).map(ToOwned::to_owned);
                self.tasks.extend(id.map(|id| (id, task)));
            }
            Err(e) => self.broken.push((task, e.into())),
        }
    }
}

/// A file that cannot be read may be the one: then its own error is the answer.
fn not_found(wanted: &str, mut folder: Folder) -> ConfigError {
    if let Some(i) = folder.broken.iter().position(|(task, _)| seems_to_be(task, wanted)) {
        return folder.broken.swap_remove(i).1;
    }
    let near = nearest(wanted, folder.tasks.iter().map(|(id, _)| id.as_str()));
    let mut message = format!("there is no task `{wanted}` in {TASKS_FOLDER}/*.yml");
    if let Some(near) = near {
        message.push_str("; did you mean `");
        message.push_str(near);
        message.push_str("`?");
    }
    for (_, error) in folder.broken {
        message.push_str("; not readable: ");
        message.push_str(&error.to_string());
    }
    ConfigError::not_found(message)
}

fn seems_to_be(task: &FoundTask, wanted: &str) -> bool {
    let text = String::from_utf8_lossy(&task.bytes);
    let ids = text.lines().filter_map(|line| line.strip_prefix("task:"));
    let mut ids = ids.map(|id| id.split('#').next().unwrap_or_default().trim().trim_matches(['"', '\'']));
    task.path == format!("{TASKS_FOLDER}/{wanted}.yml") || ids.any(|id| id.eq_ignore_ascii_case(wanted))
}
