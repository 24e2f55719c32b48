//! Side effects on the world outside: what is intended, what was approved, what is known of it (R-A1 – R-A20).
//!
//! - `request` is what somebody wants, in its normal form, with the key that is made from its business meaning
//! - `contract` is what the other side guarantees; `answer` is what it said
//! - `state` holds the tables; `change` is what moves along them; `record` is what stands in the database
//! - `wording` puts a request into the words of a contract
//! - `told` is what whoever asked for one is told
//! - `approval` binds a person's agreement to exactly one request

pub mod answer;
pub mod approval;
pub mod change;
pub mod contract;
pub mod record;
pub mod request;
pub mod state;
pub mod told;
pub mod wording;

pub use answer::{Answer, Reading};
pub use change::{ActionFacts, ActionMove};
pub use contract::Contract;
pub use record::ActionRecord;
pub use request::ActionRequest;
pub use state::{ActionEvent, ActionState};
