//! A service that registers a name and connects each flow to the name with a TCP or Unix server.

use std::collections::BTreeMap;
use std::time::Instant;

use carina_api::DifName;
use carina_client::{FlowRequest, Node, Registration, RegistrationEvent};
use carina_sys::Interest;
use rustix::net::{SendFlags, send};

use crate::connection::prepare;
use crate::dial::{Dial, Failed, Progress, words};
use crate::endpoint::Resolved;
use crate::error::GatewayError;
use crate::live::Live;
use crate::proxy_protocol::header;
use crate::refusals::Refusals;
use crate::service::{Service, Watch};
use crate::settings::Expose;

/// The service that exposes one TCP or Unix server.
pub(crate) struct Exposed {
    settings: Expose,
    server: Resolved,
    registration: Registration,
    watch: Watch,
    /// Attempts to connect to the server that are not complete, by their item in the epoll set.
    dials: BTreeMap<u32, Dial<FlowRequest>>,
    last_item: u32,
    live: Live,
    refusals: Refusals,
}

impl Exposed {
    pub(crate) fn new(
        node: &Node,
        settings: Expose,
        watch: Watch,
    ) -> Result<(Exposed, Vec<DifName>), GatewayError> {
        let server = settings
            .to
            .resolve()
            .map_err(GatewayError::resolving(&settings.to))?;
        let registered = node.register(&settings.name, settings.dif.as_ref());
        let registration = registered.map_err(|source| GatewayError::Register {
            name: settings.name.clone(),
            source,
        })?;
        let system = || GatewayError::system("waiting for flows");
        watch
            .add(&registration, REGISTRATION, Interest::Read)
            .map_err(system())?;
        let difs = registration.difs().to_vec();
        let exposed = Exposed {
            server,
            registration,
            watch,
            dials: BTreeMap::new(),
            last_item: REGISTRATION,
            live: Live::new(settings.connections_max).map_err(system())?,
            refusals: Refusals::new(format_args!("{} to {}", settings.name, settings.to)),
            settings,
        };
        Ok((exposed, difs))
    }

    fn ended(&self) -> impl FnOnce(carina_client::Error) -> GatewayError + use<> {
        let name = self.settings.name.clone();
        move |source| GatewayError::Ended { name, source }
    }

    fn begin(&mut self, request: FlowRequest, now: Instant) -> Result<(), GatewayError> {
        if !self.live.has_room(self.dials.len(), now) {
            let max = self.settings.connections_max;
            let why = format!(
                "{} has {max} connections; that is the limit",
                self.settings.to
            );
            return self.refuse(&request, &why, now);
        }
        let (dial, progress) = match Dial::start(&self.server, request.clone(), now) {
            Ok(started) => started,
            Err(error) => return self.refuse(&request, &words(error), now),
        };
        match progress {
            Progress::Waiting => self.keep(dial, now),
            other => self.advance(dial, other, now),
        }
    }

    /// Keeps an attempt to connect until an event or its deadline.
    fn keep(&mut self, dial: Dial<FlowRequest>, now: Instant) -> Result<(), GatewayError> {
        self.last_item = self.last_item.checked_add(1).unwrap_or(REGISTRATION + 1);
        let item = self.last_item;
        // A socket whose attempt must be repeated has no events.
        if dial.retry_at.is_none()
            && let Err(error) = self.watch.add(&dial, item, Interest::Write)
        {
            return self.refuse(&dial.request, &error.to_string(), now);
        }
        self.dials.insert(item, dial);
        Ok(())
    }

    fn advance(
        &mut self,
        dial: Dial<FlowRequest>,
        progress: Progress,
        now: Instant,
    ) -> Result<(), GatewayError> {
        match progress {
            Progress::Connected => self.accept(dial, now),
            Progress::Waiting => self.keep(dial, now),
            Progress::Failed(why) => {
                let why = self.of_server(&why.to_string());
                self.refuse(&dial.request, &why, now)
            }
        }
    }

    /// Accepts the flow request, after the server has accepted the connection, and attaches the
    /// connection to the flow.
    fn accept(&mut self, dial: Dial<FlowRequest>, now: Instant) -> Result<(), GatewayError> {
        let (socket, request) = dial.into_parts();
        let is_tcp = matches!(self.server, Resolved::Tcp(_));
        let made = prepare(&socket, is_tcp).map_err(words);
        let made = made.and_then(|()| self.introduce(&socket, &request));
        let made = made.and_then(|()| self.live.add(&socket).map_err(|error| error.to_string()));
        match made {
            Ok(()) => {
                let accepted = self
                    .registration
                    .start_accept_stream(&request, Some(socket));
                accepted.map_err(self.ended())
            }
            Err(why) => self.refuse(&request, &self.of_server(&why), now),
        }
    }

    /// Sends the server the header of the PROXY protocol, if it is configured, with the name of the
    /// remote application.
    fn introduce(
        &self,
        socket: impl std::os::fd::AsFd,
        request: &FlowRequest,
    ) -> Result<(), String> {
        if !self.settings.proxy_protocol {
            return Ok(());
        }
        let header = header(request);
        // The buffer of a new connection has room for the header.
        match send(socket, &header, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(bytes) if bytes == header.len() => Ok(()),
            Ok(_) => Err("the server did not accept the header of the PROXY protocol".to_owned()),
            Err(error) => Err(words(error)),
        }
    }

    fn of_server(&self, why: &str) -> String {
        format!("{}: {why}", self.settings.to)
    }

    fn refuse(
        &mut self,
        request: &FlowRequest,
        why: &str,
        now: Instant,
    ) -> Result<(), GatewayError> {
        self.refusals.note(why, now);
        let refused = self.registration.refuse(request, why);
        refused.map_err(self.ended())
    }
}

impl Service for Exposed {
    fn handle(&mut self, item: u32, now: Instant) -> Result<(), GatewayError> {
        if let Some(dial) = self.dials.remove(&item) {
            self.watch.remove(&dial);
            let progress = dial.progress();
            return self.advance(dial, progress, now);
        }
        if item != REGISTRATION {
            return Ok(());
        }
        for _ in 0..EVENTS_MAX {
            let event = self.registration.try_next_event();
            match event.map_err(self.ended())? {
                Some(RegistrationEvent::Request(request)) => self.begin(request, now)?,
                Some(RegistrationEvent::NotAccepted { error, .. }) => {
                    self.refusals.note(error, now);
                }
                // The flow was accepted: the node has the connection.
                Some(_) => {}
                None => return Ok(()),
            }
        }
        Ok(())
    }

    fn handle_due(&mut self, now: Instant) -> Result<(), GatewayError> {
        self.refusals.log(now);
        let due = self.dials.extract_if(.., |_, dial| dial.deadline() <= now);
        for (_, mut dial) in due.collect::<Vec<_>>() {
            self.watch.remove(&dial);
            let progress = if dial.until <= now {
                Progress::Failed(Failed::Silent)
            } else {
                dial.connect(&self.server, now)
            };
            self.advance(dial, progress, now)?;
        }
        Ok(())
    }

    fn deadline(&self) -> Option<Instant> {
        let dials = self.dials.values().map(Dial::deadline).min();
        dials.into_iter().chain(self.refusals.deadline()).min()
    }
}

/// Number of the registration in the epoll set.
const REGISTRATION: u32 = 0;

/// Largest number of events that are handled in a row, before events of other services.
const EVENTS_MAX: usize = 64;
