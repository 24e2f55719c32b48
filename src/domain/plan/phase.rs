//! Which moves of a step move the phase of its run, and where a run begins that leaves phases out (R-M5).

use crate::domain::machine::Refused;
use crate::domain::run::{PHASE, Phase, PhaseEvent};
use crate::domain::step::StepEvent;
use crate::domain::task::{StepKind, TaskSpec};

/// The phase in which a run is born. Without a check nothing is known of the work, so it has none until its release is made
/// or its deployment begins.
pub fn first_phase(spec: &TaskSpec) -> Option<Phase> {
    spec.steps.iter().any(|step| step.kind() == StepKind::Qa).then_some(Phase::QaPending)
}

/// What a move of a step does to the phase, if it does anything. Checks are not among it: whether all of them are green is
/// no question about one step. A move of the phase that is not due (a second deployment, a release after a deployment) is
/// left out by whoever stages it: the phase never goes back.
pub fn phase_event(kind: StepKind, event: StepEvent) -> Option<PhaseEvent> {
    match kind {
        StepKind::Release if event == StepEvent::Succeed => Some(PhaseEvent::MakeRelease),
        StepKind::Deploy if event.begins() => Some(PhaseEvent::Deploy),
        StepKind::Verify if event.begins() => Some(PhaseEvent::Verify),
        _ => None,
    }
}

/// The phase after an event. A run without a phase has left out those before: it enters at the one that the event is about.
/// Errors: the refusal of R-M5's table.
pub fn next_phase(phase: Option<Phase>, event: PhaseEvent) -> Result<Phase, Refused> {
    match (phase, event) {
        (Some(phase), event) => PHASE.next(phase, event),
        (None, PhaseEvent::MakeRelease) => Ok(Phase::ReleaseReady),
        (None, PhaseEvent::Deploy) => Ok(Phase::Deploying),
        (None, event) => Err(PHASE.refusal("none", event)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::machine::Word as _;

    fn after(first: Option<Phase>, moves: &[(StepKind, StepEvent)]) -> Vec<Phase> {
        let mut phase = first;
        let mut seen = Vec::new();
        for event in moves.iter().filter_map(|(kind, event)| phase_event(*kind, *event)) {
            if let Ok(next) = next_phase(phase, event) {
                phase = Some(next);
                seen.push(next);
            }
        }
        seen
    }

    #[test]
    fn r_m5_a_delivery_goes_through_its_phases_and_leaves_out_those_without_a_step() {
        let release = [(StepKind::Release, StepEvent::Begin), (StepKind::Release, StepEvent::Succeed)];
        let deploy = [(StepKind::Deploy, StepEvent::Ask), (StepKind::Deploy, StepEvent::Approve)];
        let verify = [(StepKind::Verify, StepEvent::Begin), (StepKind::Verify, StepEvent::Succeed)];
        let all = [release, deploy, verify].concat();
        let phases = [Phase::ReleaseReady, Phase::Deploying, Phase::Verifying];
        assert_eq!(after(Some(Phase::QaPassed), &all), phases);
        assert_eq!(after(None, &all), phases, "without a check");
        assert_eq!(after(None, &[deploy, verify].concat()), phases[1..], "without a check and a release");
        assert_eq!(after(Some(Phase::QaPassed), &[deploy, verify].concat()), phases[1..], "without a release");
        assert_eq!(after(None, &verify), [], "a look at nothing in particular is no phase");
    }

    #[test]
    fn r_m5_the_phase_never_goes_back_and_asking_moves_nothing() {
        let again = [(StepKind::Deploy, StepEvent::BeginAgain), (StepKind::Release, StepEvent::Succeed)];
        assert_eq!(after(Some(Phase::Verifying), &again), []);
        assert_eq!(after(Some(Phase::QaFailed), &again), [], "what is red is not deployed");
        for kind in StepKind::ALL {
            for event in [StepEvent::Ask, StepEvent::AskAgain, StepEvent::Block, StepEvent::Skip] {
                assert_eq!(phase_event(*kind, event), None, "{kind} {event}");
            }
        }
    }
}
