//! Apps of frames, and their configuration.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::os::fd::BorrowedFd;

use carina_frame::Pool;
use carina_sys::Interest;
use carina_time::{Duration, Instant};

use crate::counter_file::{Counter, CounterFile};
use crate::notices::Notices;
use crate::ports::Ports;
use crate::sole::Sole;

/// An app: a part of a graph that frames pass through. Every method is optional.
///
/// The engine does the rest: it connects ports by links, counts what passes them, visits the app
/// when there is work, and sleeps when no app has any.
pub trait FrameApp: Any {
    /// Takes frames from outside and puts at most [`FRAME_BURST`](crate::FRAME_BURST) of
    /// them on output links. Called once in each breath.
    fn pull(&mut self, ports: &mut Ports<'_>) {
        let _ = ports;
    }

    /// Takes the frames that wait on the input links. Called when there are any. Frames that the
    /// app leaves on a link are offered again in the next breath.
    fn push(&mut self, ports: &mut Ports<'_>) {
        let _ = ports;
    }

    /// Does periodic work of the app. Called about every [`AppConfig::TICK`].
    fn tick(&mut self, ports: &mut Ports<'_>) {
        let _ = ports;
    }

    /// Tells the app that the links at its ports of [`PortList::Any`] have changed; also called
    /// before the first visit. An app whose ports all have fixed names can ignore it.
    fn rewired(&mut self, ports: &PortNames<'_>) {
        let _ = ports;
    }

    /// Returns when the engine must visit the app although no frame waits, for example to pace
    /// frames; `None` for never. It may change with any call above.
    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    /// Returns a descriptor that becomes ready when there are frames to pull, if the app has one.
    /// It must not change during the app's life.
    fn wait_fd(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        None
    }

    /// Prepares the app for the sleep of its worker: from now on its descriptor becomes ready when
    /// frames arrive. Returns false if there are frames to pull already.
    fn arm(&mut self) -> bool {
        true
    }

    /// Cancels [`FrameApp::arm`], because the worker is awake again. Cheap if nothing is armed.
    fn disarm(&mut self) {}

    /// Returns the parts of the app that take long to free, such as a large table or a kernel
    /// socket. They are dropped on another thread than the one that moves frames. Called when the
    /// app has left its network. An app that is `Send` may return itself.
    fn dismantle(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        None
    }

    /// Whether the frames that wait at the inputs cannot move before something outside of the
    /// engine happens. The engine may then sleep until the app's descriptor is ready or its
    /// deadline has come.
    fn is_blocked(&self) -> bool {
        false
    }
}

/// The configuration of an app. Its type determines the kind of app.
///
/// A graph holds values of this type, and compares two graphs by them. A configuration may move to
/// another thread, where the app is built; the app itself stays on that thread.
pub trait AppConfig: Any + Clone + PartialEq + fmt::Debug + Send + Sync {
    /// Name of the kind of app, as files of graphs write it.
    const KIND: &'static str;
    /// The ports on which other apps can put frames into the app.
    const INPUTS: PortList;
    /// The ports on which the app puts frames for other apps.
    const OUTPUTS: PortList;
    /// How often the app's `tick` is called; `None` for never.
    const TICK: Option<Duration> = None;
    /// What the app does when an output link has no room for a frame.
    const WHEN_FULL: WhenFull = WhenFull::Drops;
    /// Whether apps of this kind have something to prepare in [`AppConfig::open`]; otherwise it is
    /// not called.
    const OPENS: bool = false;

    /// Type of the app that runs with this configuration.
    type App: FrameApp;

    /// Checks the values of the configuration and their combination. Opens nothing, so that a graph
    /// can be checked where its devices and files do not exist. The network calls it before
    /// [`AppConfig::build`].
    ///
    /// # Errors
    /// A value is wrong. The text names it and says what would be right.
    fn check(&self) -> Result<(), AppError> {
        Ok(())
    }

    /// Returns whether building the app affects anything outside of the process.
    fn outside(&self) -> Outside {
        Outside::Nothing
    }

    /// Returns the longest frame that the app's configuration allows, in bytes. Frames of the pool
    /// must be at least as long.
    fn frame_bytes(&self) -> usize {
        0
    }

    /// Returns the values that no other app of the graph may have as well, such as a socket or a
    /// key.
    fn sole(&self) -> Vec<Sole> {
        Vec::new()
    }

    /// Builds the app, between two breaths of its worker, while all apps of the worker wait. Work
    /// of more than some microseconds should be done in [`AppConfig::open`]. If the app replaces
    /// another one, that app is still running.
    ///
    /// # Errors
    /// The configuration is wrong, or the system refuses a resource. The graph then stays
    /// unchanged.
    fn build(&self, context: &mut AppContext<'_>) -> Result<Self::App, AppError>;

    /// Prepares what takes long and is `Send`: rings of a socket, a large table, a compiled
    /// program. It is called before the app is built, for all new apps at the same time, each on a
    /// thread of its own in the namespaces of the worker, while the worker moves frames.
    /// [`AppContext::take_opened`] then has the result. The context has no running app. Without
    /// workers ([`Network::configure`](crate::Network::configure)), it is not called if
    /// only one app is new; that app must open what it needs in `build`.
    ///
    /// An app that is `Send` can be built completely here, by [`made`].
    fn open(&self, context: &mut AppContext<'_>) -> Option<Opened> {
        let _ = context;
        None
    }

    /// Whether a running app with the configuration `old` can be changed to this configuration by
    /// [`AppConfig::apply`]. If not, a new app replaces it.
    fn can_apply(&self, old: &Self) -> bool {
        let _ = old;
        false
    }

    /// Changes a running app to this configuration, if [`AppConfig::can_apply`] allows it.
    fn apply(&self, app: &mut Self::App) {
        let _ = app;
    }
}

/// What an app does when an output has no room.
///
/// Back-pressure passes from link to link: a link has it if its frames come from a port that waits,
/// through apps that all wait too. Links where frames of several sources or for several
/// destinations meet drop frames instead; otherwise frames that wait for one would block the
/// others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// The app continues. Frames without room are dropped and counted.
    Drops,
    /// The app pulls no more from outside than [`Ports::room`] allows. This is for ports; a port
    /// with several linked outputs counts as one that drops.
    PullsNoMore,
    /// The app leaves frames without room on its input. This is for apps that move frames only by
    /// [`Ports::forward`], and from each input only to the output of the same number.
    Waits,
}

/// What building an app affects outside of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    /// Nothing; at most files are read. [`Graph::rehearse`](crate::Graph::rehearse) builds
    /// such an app.
    Nothing,
    /// Devices, sockets or files that are written. Before such a graph runs, only
    /// [`AppConfig::check`] can tell whether the configuration is right.
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

/// The result of [`AppConfig::open`]: the opened resource, or why it could not be opened.
pub type Opened = Result<Box<dyn Any + Send>, AppError>;

/// Builds the whole app, for [`AppConfig::open`] of a kind whose apps are `Send`.
/// [`AppConfig::build`] is then called on the thread that opens, not on the worker. Never returns
/// `None`.
#[must_use]
pub fn made<C: AppConfig>(config: &C, context: &mut AppContext<'_>) -> Option<Opened>
where
    C::App: Send,
{
    let app = config.check().and_then(|()| config.build(context));
    Some(app.map(|app| Box::new(app) as Box<dyn Any + Send>))
}

/// The error of an app that cannot be built; its text says what to correct.
pub type AppError = Box<dyn Error + Send + Sync>;

/// An input or output of an app, with a fixed name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// Name of the app's input or output, as in a link: `output` in `uplink.output`.
    pub name: &'static str,
    /// Whether a graph may leave the input or output without a link. The engine drops and counts
    /// the frames that an app puts on an optional output without a link.
    pub is_optional: bool,
}

impl Port {
    /// Makes a port that must have a link.
    #[must_use]
    pub const fn new(name: &'static str) -> Port {
        Port {
            name,
            is_optional: false,
        }
    }

    /// Makes a port that may have a link.
    #[must_use]
    pub const fn optional(name: &'static str) -> Port {
        Port {
            name,
            is_optional: true,
        }
    }
}

/// Input or output ports that a kind of app may have: a fixed list of names, or any names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortList {
    /// Ports with these names, numbered from 0 in this order.
    Named(&'static [Port]),
    /// Any number of ports with any names, numbered from 0 in the order of their names.
    Any,
}

impl PortList {
    /// An app without ports in this direction.
    pub const NO_PORT: PortList = PortList::Named(&[]);
    /// One port, named `input`, that must have a link.
    pub const INPUT: PortList = PortList::Named(&[Port::new("input")]);
    /// One port, named `output`, that must have a link.
    pub const OUTPUT: PortList = PortList::Named(&[Port::new("output")]);
}

/// The names of an app's ports that have links, indexed by port number.
#[derive(Clone, Copy, Debug)]
pub struct PortNames<'a> {
    /// Names of the input ports.
    pub inputs: &'a [String],
    /// Names of the output ports.
    pub outputs: &'a [String],
}

/// What the network provides to an app while it is built: name, pool, counters and notices.
pub struct AppContext<'a> {
    pub(super) name: &'a str,
    pub(super) pool: &'a Pool,
    pub(super) counters: &'a CounterFile,
    pub(super) notices: &'a Notices,
    pub(super) running: Option<&'a dyn FrameApp>,
    pub(super) opened: Option<Opened>,
}

impl AppContext<'_> {
    /// Returns the app's name in the graph.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name
    }

    /// Returns the network's pool of frames.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        self.pool
    }

    /// Creates a counter of the app with value 0, which tools show as `APP/NAME`.
    #[must_use]
    pub fn counter(&self, name: &str) -> Counter {
        self.counters.counter(&format!("{}/{name}", self.name))
    }

    /// Returns the list to which the app adds notices to the operator.
    #[must_use]
    pub fn notices(&self) -> &Notices {
        self.notices
    }

    /// Takes the result of [`AppConfig::open`]; `None` if that was not called.
    ///
    /// # Errors
    /// It failed to open.
    pub fn take_opened<T: Any>(&mut self) -> Result<Option<T>, AppError> {
        let opened = self.opened.take().transpose()?;
        Ok(opened
            .and_then(|opened| opened.downcast().ok())
            .map(|app: Box<T>| *app))
    }

    /// The app itself, if [`made`] built it.
    fn take_made<A: FrameApp>(&mut self) -> Result<Option<A>, AppError> {
        match &self.opened {
            Some(Ok(opened)) if !opened.is::<A>() => Ok(None),
            _ => self.take_opened(),
        }
    }

    /// Returns the running app that the new one replaces, if it is of type `A` and runs on the same
    /// worker. It keeps running until the new app is in place, or permanently if another app cannot
    /// be built.
    #[must_use]
    pub fn running<A: FrameApp>(&self) -> Option<&A> {
        (self.running? as &dyn Any).downcast_ref()
    }
}

/// An [`AppConfig`] of any type, so that a graph can hold configurations of different kinds.
pub trait AnyConfig: Any + fmt::Debug + Send + Sync {
    /// Returns [`AppConfig::KIND`].
    fn kind(&self) -> &'static str;
    /// Returns [`AppConfig::INPUTS`].
    fn inputs(&self) -> PortList;
    /// Returns [`AppConfig::OUTPUTS`].
    fn outputs(&self) -> PortList;
    /// Returns [`AppConfig::TICK`].
    fn tick(&self) -> Option<Duration>;
    /// Returns [`AppConfig::WHEN_FULL`].
    fn when_full(&self) -> WhenFull;
    /// Returns [`AppConfig::OPENS`].
    fn opens(&self) -> bool;
    /// Calls [`AppConfig::open`].
    fn open_any(&self, context: &mut AppContext<'_>) -> Option<Opened>;
    /// Calls [`AppConfig::check`].
    ///
    /// # Errors
    /// As for [`AppConfig::check`].
    fn check_any(&self) -> Result<(), AppError>;
    /// Calls [`AppConfig::outside`].
    fn outside_any(&self) -> Outside;
    /// Calls [`AppConfig::frame_bytes`].
    fn frame_bytes_any(&self) -> usize;
    /// Calls [`AppConfig::sole`].
    fn sole_any(&self) -> Vec<Sole>;
    /// Calls [`AppConfig::check`], then [`AppConfig::build`], unless [`made`] has already built the
    /// app.
    ///
    /// # Errors
    /// As for [`AppConfig::check`] and [`AppConfig::build`].
    fn build_any(&self, context: &mut AppContext<'_>) -> Result<Box<dyn FrameApp>, AppError>;
    /// Whether `other` is the same configuration of the same kind of app.
    fn is_equal(&self, other: &dyn AnyConfig) -> bool;
    /// Calls [`AppConfig::can_apply`]. False if `old` is of another kind, or if
    /// [`AppConfig::check`] refuses the configuration.
    fn can_apply_any(&self, old: &dyn AnyConfig) -> bool;
    /// Calls [`AppConfig::apply`]; has no effect on an app of another kind.
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
