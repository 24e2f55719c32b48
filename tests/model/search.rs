//! Breadth first over every state; the way to each is kept, so that a broken law comes with the shortest history.

use std::collections::HashMap;
use std::fmt::Write as _;

use crate::laws;
use crate::moves::{Action, World};
use crate::state::State;

/// Everything that can be reached.
pub(crate) struct Explored {
    pub states: Vec<State>,
    pub transitions: usize,
    pub at_rest: usize,
    pub depth: usize,
    /// For each state the one before it and what happened in between.
    came_from: Vec<Option<(usize, Action)>>,
    /// For each state those that lead to it without a person's cancel.
    leads_from: Vec<Vec<usize>>,
}

/// Explores; the error is the law that broke, and the way there.
pub(crate) fn explore(world: &World, first: State) -> Result<Explored, String> {
    let mut known = HashMap::from([(first.clone(), 0)]);
    let mut depths = vec![0];
    let mut found = Explored {
        states: vec![first],
        transitions: 0,
        at_rest: 0,
        depth: 0,
        came_from: vec![None],
        leads_from: vec![Vec::new()],
    };
    let mut at = 0;
    while at < found.states.len() {
        let before = found.states[at].clone();
        found.at_rest += usize::from(before.is_at_rest());
        for (action, after) in world.successors(&before) {
            found.transitions += 1;
            let broken = laws::check(&before, action, &after);
            let next = *known.entry(after).or_insert_with_key(|state| {
                found.states.push(state.clone());
                found.came_from.push(Some((at, action)));
                found.leads_from.push(Vec::new());
                depths.push(depths[at] + 1);
                found.states.len() - 1
            });
            if let Err(law) = broken {
                return Err(format!("{law}\n{}  {action:?}\n{:#?}", found.way_to(at), found.states[next]));
            }
            if action != Action::RequestCancel {
                found.leads_from[next].push(at);
            }
        }
        at += 1;
    }
    found.depth = depths.into_iter().max().unwrap_or(0);
    Ok(found)
}

impl Explored {
    /// What happened on the way to a state.
    pub(crate) fn way_to(&self, state: usize) -> String {
        let mut way = Vec::new();
        let mut at = state;
        while let Some((before, action)) = self.came_from[at] {
            way.push(action);
            at = before;
        }
        way.iter().rev().fold(String::new(), |mut text, action| {
            let _ = writeln!(text, "  {action:?}");
            text
        })
    }

    /// The states from which no history leads to rest.
    pub(crate) fn cannot_rest(&self) -> Vec<usize> {
        let mut can = vec![false; self.states.len()];
        let mut open: Vec<usize> = (0..self.states.len()).filter(|i| self.states[*i].is_at_rest()).collect();
        for at in &open {
            can[*at] = true;
        }
        while let Some(at) = open.pop() {
            for before in &self.leads_from[at] {
                if !std::mem::replace(&mut can[*before], true) {
                    open.push(*before);
                }
            }
        }
        (0..can.len()).filter(|i| !can[*i]).collect()
    }
}
