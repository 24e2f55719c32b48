//! Actions on threads of their own, so that an attempt goes on hearing its children, its lease and its signals meanwhile.

use std::sync::mpsc::{SyncSender, TrySendError};
use std::thread::Scope;

use super::Outside;
use super::carry::{Carried, Errand, May, carry};
use super::stop::Stop;
use super::want::Intended;
use crate::domain::failure::Code;
use crate::domain::ids::{ActionId, StepKey};
use crate::domain::policy::Policy;
use crate::domain::quantity::{BootMs, Millis};
use crate::engine::error::EngineError;
use crate::engine::host::{Message, now};
use crate::store::{Hold, Store};

/// How soon a full inbox is tried again.
const BETWEEN_TRIES: Millis = Millis(1);

/// What an action is carried out for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum For {
    /// A step, which ends with it.
    Step(StepKey),
    /// Something inside the run asked for it, and looks at the record for the answer.
    Wish(ActionId),
}

/// One action to be carried out.
pub struct Order {
    /// For whom.
    pub whom: For,
    /// The run that does it; `None` where no run does.
    pub hold: Option<Hold>,
    /// The policy that holds.
    pub policy: Policy,
    /// The action.
    pub intended: Intended,
    /// How long one call of a command may take.
    pub limit: Millis,
    /// What may be done.
    pub may: May,
}

/// An action under way; dropping it ends it as soon as that can be done.
pub struct UnderWay {
    /// For whom.
    pub whom: For,
    /// Since when.
    pub since: BootMs,
    stop: Stop,
}

impl UnderWay {
    /// Something that begins now.
    pub fn new(whom: For, stop: Stop) -> Self {
        Self { whom, since: now().boot, stop }
    }

    /// Ends waiting and whatever is being done. What was sent by then and not answered is unknown.
    pub fn stop(&self) {
        self.stop.set();
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.stop.set();
    }
}

/// Starts it. Its end is a message.
pub fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    outside: Outside<'scope>,
    order: Order,
    inbox: SyncSender<Message>,
) -> Result<UnderWay, EngineError> {
    let stop = Stop::default();
    let under_way = UnderWay::new(order.whom.clone(), stop.clone());
    let work = move || {
        let carried = run(outside, &order, &stop);
        tell(&inbox, Message::Carried(order.whom, Box::new(carried)), &stop);
    };
    let named = std::thread::Builder::new().name("action".into());
    match named.spawn_scoped(scope, work) {
        Ok(_) => Ok(under_way),
        Err(error) => Err(EngineError::failed(Code::EnvLimit, format!("no thread for an action: {error}"))),
    }
}

fn run(outside: Outside<'_>, order: &Order, stop: &Stop) -> Result<Carried, EngineError> {
    let mut store = Store::open(&outside.home.database())?;
    let Order { hold, policy, intended, limit, may, .. } = order;
    let errand = Errand { outside, hold: hold.as_ref(), policy, intended, limit: *limit, may: *may, stop };
    carry(&errand, &mut store)
}

/// Tells the engine; when the attempt is over nobody is left to be told, and the record says it all.
pub(in crate::engine) fn tell(inbox: &SyncSender<Message>, message: Message, stop: &Stop) {
    let mut message = message;
    while let Err(TrySendError::Full(back)) = inbox.try_send(message) {
        if stop.wait(BETWEEN_TRIES) {
            return;
        }
        message = back;
    }
}
