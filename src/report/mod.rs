//! LAYER 1: views to text, pure. The committed record goes in; JSON, Markdown, HTML, JUnit XML or words for a terminal come
//! out. Nothing here decides anything about a run, reads a clock or writes a file.
//!
//! | file | idea |
//! | --- | --- |
//! | [`input`] | what a report is made of |
//! | [`run_json`], [`action_json`], [`record_json`], [`machine_json`], [`policy_json`] | one function per JSON document; its schema is in `docs/reference/schemas/` |
//! | [`approval`] | what a person is asked for, as JSON and in words |
//! | [`document`] | how a JSON document is written |
//! | [`compare`] | what differs between two runs or attempts, as data |
//! | [`story`] | what a report tells, in which order, as data: said once for Markdown and HTML |
//! | `tell`, `phrase` | how the story is made of a record, and the words that all formats share |
//! | [`markdown`], [`html`], [`junit`] | the files of a run |
//! | [`text`], [`action_text`] | the terminal |
//! | [`amount`] | times and amounts as they are written |

pub mod action_json;
pub mod action_text;
pub mod amount;
pub mod approval;
pub mod command_json;
pub mod compare;
pub mod document;
pub mod html;
pub mod input;
pub mod junit;
pub mod machine_json;
pub mod markdown;
mod phrase;
pub mod policy_json;
pub mod providers;
pub mod record_json;
pub mod requested;
pub mod run_json;
pub mod story;
mod tell;
pub mod text;

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod rendered;
#[cfg(test)]
mod sample;
#[cfg(test)]
mod schemas;
