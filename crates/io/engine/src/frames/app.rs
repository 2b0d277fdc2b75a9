//! What an app of frames is, and how it is configured.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::os::fd::BorrowedFd;

use carina_frame::Pool;
use carina_sys::Interest;
use carina_time::{Duration, Instant};

use crate::counter_file::{Counter, CounterFile};
use crate::frames::notices::Notices;
use crate::frames::ports::Ports;

/// A part of a graph that frames go through. Every method is optional.
///
/// The engine does the rest: it joins ports by links, counts what goes over them, visits the app
/// when there is something to do, and sleeps when no app has anything.
pub trait FrameApp: Any {
    /// Takes frames from outside and puts at most [`FRAME_BURST`](crate::frames::FRAME_BURST) of
    /// them on output links. Called once a breath.
    fn pull(&mut self, ports: &mut Ports<'_>) {
        let _ = ports;
    }

    /// Takes the frames that wait on the input links. Called when there are some; what is left on
    /// a link is offered again in the next breath.
    fn push(&mut self, ports: &mut Ports<'_>) {
        let _ = ports;
    }

    /// Does what is due by time alone. Called every [`AppConfig::TICK`].
    fn tick(&mut self, ports: &mut Ports<'_>) {
        let _ = ports;
    }

    /// The links at ports of any name have changed; called also before the first visit. An app
    /// whose ports all have fixed names need not care.
    fn rewired(&mut self, ports: &PortNames<'_>) {
        let _ = ports;
    }

    /// When the app must be visited although no frame waits: for pacing. May change after any call
    /// above.
    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    /// A descriptor that becomes ready when there is something to pull. Constant over the app's
    /// life.
    fn wait_fd(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        None
    }

    /// Asks the outside to ring from here on. False when there is something to pull already.
    fn arm(&mut self) -> bool {
        true
    }

    /// Takes back what `arm` asked for. Cheap when nothing is armed.
    fn disarm(&mut self) {}

    /// Gives up what takes long to free, such as a large table or a socket of the kernel: it is
    /// dropped on another thread than that which moves frames. Called when the app has gone from
    /// its network. An app that may go to another thread returns itself.
    fn dismantle(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        None
    }

    /// Whether the frames that wait at the inputs wait for something outside: the engine may then
    /// sleep until the app's descriptor is ready or its deadline has come.
    fn is_blocked(&self) -> bool {
        false
    }
}

/// The configuration of an app, which says what kind of app it is.
///
/// What stands in a graph is a value of this type; two graphs are compared by it. It may go to
/// another thread, where the app is made; the app itself stays there.
pub trait AppConfig: Any + Clone + PartialEq + fmt::Debug + Send + Sync {
    /// The name of the kind of app, as files of graphs have it.
    const KIND: &'static str;
    /// The ports on which frames come in.
    const INPUTS: PortList;
    /// The ports on which frames go out.
    const OUTPUTS: PortList;
    /// How often the app's `tick` is called.
    const TICK: Option<Duration> = None;
    /// What the app does when an output has no room.
    const WHEN_FULL: WhenFull = WhenFull::Drops;
    /// Whether [`AppConfig::open`] opens something.
    const OPENS: bool = false;

    /// What runs.
    type App: FrameApp;

    /// Checks the values of the configuration, alone and beside one another. Opens nothing, so that
    /// a graph can be checked where its devices and files do not exist. The network calls it
    /// before [`AppConfig::build`].
    ///
    /// # Errors
    /// A value is wrong; the text names it, and what would be right.
    fn check(&self) -> Result<(), AppError> {
        Ok(())
    }

    /// What making the app has an effect on outside of the process.
    fn outside(&self) -> Outside {
        Outside::Nothing
    }

    /// The longest frame that the app has room for by its configuration: frames of the pool must be
    /// as long.
    fn frame_bytes(&self) -> usize {
        0
    }

    /// What no other app of the graph may have as well, such as a socket or a key.
    fn sole(&self) -> Vec<Sole> {
        Vec::new()
    }

    /// Makes the app, between two breaths of its worker: all apps there wait meanwhile. What takes
    /// longer than some microseconds belongs into [`AppConfig::open`]. The app that it replaces, if
    /// any, still runs.
    ///
    /// # Errors
    /// The configuration is wrong, or the system refuses a resource; the graph then stays as it
    /// was.
    fn build(&self, context: &mut AppContext<'_>) -> Result<Self::App, AppError>;

    /// Makes what takes long and may go from thread to thread: rings of a socket, a large table, a
    /// program that is compiled. Called before the app is made, on a thread of its own that is in
    /// the namespaces of the worker, for all new apps at once, while the worker moves frames;
    /// [`AppContext::take_opened`] then has the result. The context has no running app. Where there
    /// is no worker ([`Network::configure`](crate::frames::Network::configure)), an app that is
    /// made alone opens by itself.
    ///
    /// An app that may itself go to another thread is made here whole, by [`made`].
    fn open(&self, context: &mut AppContext<'_>) -> Option<Opened> {
        let _ = context;
        None
    }

    /// Whether an app with the configuration `old` can be changed to this one while it runs, by
    /// [`AppConfig::apply`]. If not, a new app takes its place.
    fn can_apply(&self, old: &Self) -> bool {
        let _ = old;
        false
    }

    /// Changes a running app to this configuration.
    fn apply(&self, app: &mut Self::App) {
        let _ = app;
    }
}

/// What an app does when an output has no room.
///
/// Back-pressure goes from link to link: a link has it when its frames come from a port that waits,
/// with nothing but apps in between that wait too. Links where frames of several origins or to
/// several places meet drop instead, for what waits for one would hold up the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// It goes on; what has no room is dropped and counted.
    Drops,
    /// It takes no more from outside than [`Ports::room`] says. For ports; one with several linked
    /// outputs counts as one that drops.
    PullsNoMore,
    /// It leaves what has no room where it is. For apps that move frames only by
    /// [`Ports::forward`], and from each input only to the output of the same number.
    Waits,
}

/// What making an app has an effect on outside of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    /// Nothing, beyond reading files. [`Graph::rehearse`](crate::frames::Graph::rehearse) makes
    /// such an app.
    Nothing,
    /// Devices, sockets or files that are written. Only [`AppConfig::check`] says before a graph
    /// runs whether the configuration is right.
    Something,
}

/// Frames of the pool are too short for an app.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "frames of up to {needed} bytes: the pool's frames have {has}; a pool with longer frames is \
     needed (--frame-bytes {needed})"
)]
pub(super) struct ShortFrames {
    pub(super) needed: usize,
    pub(super) has: usize,
}

/// A value that only one app of a graph may have.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sole {
    what: &'static str,
    value: Vec<u8>,
    is_secret: bool,
    reason: &'static str,
}

impl Sole {
    /// `what` is the key or the thing, such as `socket`. `reason` says why two apps cannot share
    /// the value.
    #[must_use]
    pub fn new(what: &'static str, value: impl Into<Vec<u8>>, reason: &'static str) -> Sole {
        Sole {
            what,
            value: value.into(),
            is_secret: false,
            reason,
        }
    }

    /// The same, of a value that errors must not show.
    #[must_use]
    pub fn secret(what: &'static str, value: impl Into<Vec<u8>>, reason: &'static str) -> Sole {
        Sole {
            is_secret: true,
            ..Sole::new(what, value, reason)
        }
    }
}

impl fmt::Display for Sole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, reason) = (self.what, self.reason);
        if self.is_secret {
            write!(f, "the same {what}: {reason}")
        } else {
            let value = String::from_utf8_lossy(&self.value);
            write!(f, "the same {what}, {value}: {reason}")
        }
    }
}

impl fmt::Debug for Sole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sole({})", self.what)
    }
}

/// What [`AppConfig::open`] has opened, or why it could not.
pub type Opened = Result<Box<dyn Any + Send>, AppError>;

/// The whole app, for [`AppConfig::open`] of a kind whose apps may go from thread to thread:
/// [`AppConfig::build`] is called on the thread that opens, and not on the worker.
#[must_use]
pub fn made<C: AppConfig>(config: &C, context: &mut AppContext<'_>) -> Option<Opened>
where
    C::App: Send,
{
    let app = config.check().and_then(|()| config.build(context));
    Some(app.map(|app| Box::new(app) as Box<dyn Any + Send>))
}

/// Why an app could not be made.
pub type AppError = Box<dyn Error + Send + Sync>;

/// A port with a fixed name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name.
    pub name: &'static str,
    /// It may stay without a link. What an app puts on such an output is dropped and counted.
    pub is_optional: bool,
}

impl Port {
    /// A port that must have a link.
    #[must_use]
    pub const fn new(name: &'static str) -> Port {
        Port {
            name,
            is_optional: false,
        }
    }

    /// A port that may have a link.
    #[must_use]
    pub const fn optional(name: &'static str) -> Port {
        Port {
            name,
            is_optional: true,
        }
    }
}

/// The ports of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortList {
    /// These, numbered from 0 in this order.
    Named(&'static [Port]),
    /// Any number of ports with any names, numbered from 0 in the order of their names.
    Any,
}

impl PortList {
    /// No port.
    pub const NO_PORT: PortList = PortList::Named(&[]);
    /// One port `input`.
    pub const INPUT: PortList = PortList::Named(&[Port::new("input")]);
    /// One port `output`.
    pub const OUTPUT: PortList = PortList::Named(&[Port::new("output")]);
}

/// The names of the ports that have links, each at its number.
#[derive(Clone, Copy, Debug)]
pub struct PortNames<'a> {
    /// Of the inputs.
    pub inputs: &'a [String],
    /// Of the outputs.
    pub outputs: &'a [String],
}

/// What an app may have from its network while it is made.
pub struct AppContext<'a> {
    pub(super) name: &'a str,
    pub(super) pool: &'a Pool,
    pub(super) counters: &'a CounterFile,
    pub(super) notices: &'a Notices,
    pub(super) running: Option<&'a dyn FrameApp>,
    pub(super) opened: Option<Opened>,
}

impl AppContext<'_> {
    /// The app's name in the graph.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name
    }

    /// The pool of the network.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        self.pool
    }

    /// A counter of the app, which tools show as `APP/NAME`.
    #[must_use]
    pub fn counter(&self, name: &str) -> Counter {
        self.counters.counter(&format!("{}/{name}", self.name))
    }

    /// Where the app puts what it has to say to the operator.
    #[must_use]
    pub fn notices(&self) -> &Notices {
        self.notices
    }

    /// What [`AppConfig::open`] has opened for the app, if that was called.
    ///
    /// # Errors
    /// It could not be opened.
    pub fn take_opened<T: Any>(&mut self) -> Result<Option<T>, AppError> {
        let opened = self.opened.take().transpose()?;
        Ok(opened
            .and_then(|it| it.downcast().ok())
            .map(|it: Box<T>| *it))
    }

    /// The app itself, if [`made`] made it.
    fn take_made<A: FrameApp>(&mut self) -> Result<Option<A>, AppError> {
        match &self.opened {
            Some(Ok(opened)) if !opened.is::<A>() => Ok(None),
            _ => self.take_opened(),
        }
    }

    /// The app in whose place the new one comes, if it is of type `A` and runs on the same worker.
    /// It goes on until the new one is in place, or for good if another app cannot be made.
    #[must_use]
    pub fn running<A: FrameApp>(&self) -> Option<&A> {
        (self.running? as &dyn Any).downcast_ref()
    }
}

/// [`AppConfig`] of any type.
pub trait AnyConfig: Any + fmt::Debug + Send + Sync {
    /// [`AppConfig::KIND`].
    fn kind(&self) -> &'static str;
    /// [`AppConfig::INPUTS`].
    fn inputs(&self) -> PortList;
    /// [`AppConfig::OUTPUTS`].
    fn outputs(&self) -> PortList;
    /// [`AppConfig::TICK`].
    fn tick(&self) -> Option<Duration>;
    /// [`AppConfig::WHEN_FULL`].
    fn when_full(&self) -> WhenFull;
    /// [`AppConfig::OPENS`].
    fn opens(&self) -> bool;
    /// [`AppConfig::open`].
    fn open_any(&self, context: &mut AppContext<'_>) -> Option<Opened>;
    /// [`AppConfig::check`].
    ///
    /// # Errors
    /// As there.
    fn check_any(&self) -> Result<(), AppError>;
    /// [`AppConfig::outside`].
    fn outside_any(&self) -> Outside;
    /// [`AppConfig::frame_bytes`].
    fn frame_bytes_any(&self) -> usize;
    /// [`AppConfig::sole`].
    fn sole_any(&self) -> Vec<Sole>;
    /// [`AppConfig::check`], then [`AppConfig::build`], unless the app was [`made`] before.
    ///
    /// # Errors
    /// As there.
    fn build_any(&self, context: &mut AppContext<'_>) -> Result<Box<dyn FrameApp>, AppError>;
    /// True when `other` is the same configuration of the same kind of app.
    fn is_equal(&self, other: &dyn AnyConfig) -> bool;
    /// [`AppConfig::can_apply`]; false when `old` is of another kind, or [`AppConfig::check`]
    /// refuses the configuration.
    fn can_apply_any(&self, old: &dyn AnyConfig) -> bool;
    /// [`AppConfig::apply`]; without effect on an app of another kind.
    fn apply_any(&self, app: &mut dyn FrameApp);
}

impl<C: AppConfig> AnyConfig for C {
    fn kind(&self) -> &'static str {
        C::KIND
    }

    fn inputs(&self) -> PortList {
        C::INPUTS
    }

    fn outputs(&self) -> PortList {
        C::OUTPUTS
    }

    fn tick(&self) -> Option<Duration> {
        C::TICK
    }

    fn when_full(&self) -> WhenFull {
        C::WHEN_FULL
    }

    fn opens(&self) -> bool {
        C::OPENS
    }

    fn open_any(&self, context: &mut AppContext<'_>) -> Option<Opened> {
        self.open(context)
    }

    fn check_any(&self) -> Result<(), AppError> {
        self.check()
    }

    fn outside_any(&self) -> Outside {
        self.outside()
    }

    fn frame_bytes_any(&self) -> usize {
        self.frame_bytes()
    }

    fn sole_any(&self) -> Vec<Sole> {
        self.sole()
    }

    fn build_any(&self, context: &mut AppContext<'_>) -> Result<Box<dyn FrameApp>, AppError> {
        self.check()?;
        Ok(match context.take_made::<C::App>()? {
            Some(app) => Box::new(app),
            None => Box::new(self.build(context)?),
        })
    }

    fn is_equal(&self, other: &dyn AnyConfig) -> bool {
        (other as &dyn Any).downcast_ref::<C>() == Some(self)
    }

    fn can_apply_any(&self, old: &dyn AnyConfig) -> bool {
        (old as &dyn Any)
            .downcast_ref::<C>()
            .is_some_and(|old| self.can_apply(old) && self.check().is_ok())
    }

    fn apply_any(&self, app: &mut dyn FrameApp) {
        if let Some(app) = (app as &mut dyn Any).downcast_mut::<C::App>() {
            self.apply(app);
        }
    }
}
