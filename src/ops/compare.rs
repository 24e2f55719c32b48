//! What differs between two runs, or two attempts of one (R-S7).

use super::error::OpsError;
use super::place::Place;
use crate::domain::failure::Code;
use crate::domain::record::RunView;

/// One side: a run, or one attempt of it.
#[derive(Debug)]
pub struct Side {
    /// The run.
    pub view: RunView,
    /// The attempt, for `RUN@ATTEMPT`.
    pub attempt: Option<u32>,
}

/// Looks both sides up.
pub fn sides(place: &Place, left: &str, right: &str) -> Result<(Side, Side), OpsError> {
    Ok((side(place, left)?, side(place, right)?))
}

fn side(place: &Place, text: &str) -> Result<Side, OpsError> {
    let (name, attempt) = match text.rsplit_once('@') {
        Some((name, attempt)) => {
            let number = attempt.parse::<u32>().ok();
            let bad =
                || OpsError::failed(Code::Usage, format!("`{text}`: an attempt is a number, as in run_182_001@2"));
            (name, Some(number.ok_or_else(bad)?))
        }
        None => (text, None),
    };
    let view = super::show::show(place, name)?.view;
    if let Some(number) = attempt
        && !view.attempts.iter().any(|a| a.number == number)
    {
        let message = format!("run {} has no attempt {number}", view.run.id);
        return Err(OpsError::about(&view.run.id, Code::NotFound, message));
    }
    Ok(Side { view, attempt })
}

/// The patch between the final states of two runs, as far as both are still in the repository.
pub fn patch(place: &Place, left: &RunView, right: &RunView) -> Result<Option<Vec<u8>>, OpsError> {
    let (Some(from), Some(to)) = (&left.run.snapshot, &right.run.snapshot) else { return Ok(None) };
    if !place.repo.commit_exists(from) || !place.repo.commit_exists(to) {
        return Ok(None);
    }
    Ok(Some(place.repo.patch(from, to)?))
}
