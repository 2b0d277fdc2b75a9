//! Ends of flows: their apps, their links, and whom they are joined with.

use super::*;

impl Plane {
    /// Makes the app of a flow's end, or finds the IPCP that is the end, and makes the links
    /// between it and its IPCP.
    pub(super) fn attach(
        &mut self,
        ipcp: IpcpId,
        port: PortId,
        name: String,
        end: FlowEnd,
    ) -> Result<Wires, String> {
        let seat = self.ipcps.get(&ipcp);
        let seat = seat.ok_or_else(|| format!("there is no IPCP {ipcp} on the data plane"))?;
        let hub = seat.app();
        let window = window(&end);
        let credit = match seat {
            Seat::Medium(..) => Credit::Window(window),
            Seat::Shim(..) | Seat::Normal(..) => Credit::Unlimited,
        };
        let id = self.app_of(&end)?;
        let to_flow = self.engine.connect(hub, id, credit, piece_max(window));
        let from_flow = self.engine.connect(id, hub, Credit::Stated, 0);
        let ends = (to_flow, from_flow);
        let holder = self
            .seize(id, port, name.clone(), ends, end, false)
            .map_err(|error| {
                self.engine.links().disconnect(to_flow);
                self.engine.links().disconnect(from_flow);
                error.to_string()
            })?;
        let place = Place {
            ipcp: Some(ipcp),
            name,
            holder: Some(holder),
        };
        self.directory.borrow_mut().insert(port, place);
        Ok(Wires {
            to_flow,
            from_flow,
            window,
        })
    }

    /// The app at a flow's end: a new one, or that of the IPCP above.
    fn app_of(&mut self, end: &FlowEnd) -> Result<AppId, String> {
        match end {
            FlowEnd::Ipcp { ipcp, .. } => match self.ipcps.get(ipcp) {
                Some(Seat::Normal(app, _)) => Ok(*app),
                _ => Err(format!("there is no normal IPCP {ipcp} on the data plane")),
            },
            _ => Ok(self.engine.reserve()),
        }
    }

    /// Puts `end` behind the app that [`Plane::app_of`] gave for it. `ends` are the links toward
    /// and from it. On an error the app is gone.
    fn seize(
        &mut self,
        id: AppId,
        port: PortId,
        name: String,
        ends: (LinkId, LinkId),
        end: FlowEnd,
        is_silent: bool,
    ) -> io::Result<Holder> {
        if let FlowEnd::Ipcp { ipcp, n1 } = end {
            for link in [ends.0, ends.1] {
                self.engine.links().set_mark(link, normal::n1_mark(n1));
            }
            let wires = N1Wires {
                port,
                input: ends.0,
                output: ends.1,
                is_silent,
            };
            self.order_normal(ipcp, NormalOrder::Attach { n1, wires });
            return Ok(Holder::Ipcp(ipcp, n1));
        }
        let order = CloseOrder::default();
        let mut flow = self.flow(id, port, name, ends, &order);
        flow.is_silent = is_silent;
        self.add_end(id, flow, end)?;
        Ok(Holder::App(id, order))
    }

    fn flow(
        &self,
        id: AppId,
        port: PortId,
        name: String,
        (input, output): (LinkId, LinkId),
        order: &CloseOrder,
    ) -> Flow {
        Flow {
            id,
            port,
            input,
            output,
            row: self.counters.row(Kind::Flow, u64::from(port.0), &name),
            name,
            events: self.events.clone(),
            directory: Rc::clone(&self.directory),
            order: Rc::clone(order),
            is_silent: false,
            is_done: false,
            has_channel: false,
        }
    }

    fn add_end(&mut self, id: AppId, flow: Flow, end: FlowEnd) -> io::Result<()> {
        match end {
            FlowEnd::Ring(end) => self.engine.add(id, Box::new(RingFlow::new(flow, *end))),
            FlowEnd::Socket(socket) => {
                let pool = self.engine.pool().clone();
                self.engine
                    .add(id, Box::new(SocketFlow::new(flow, socket, pool)))
            }
            FlowEnd::Ipcp { .. } => Err(io::Error::other("an IPCP needs no app of its own")),
        }
    }

    pub(super) fn respond(&mut self, port: PortId, answer: Result<FlowEnd, String>) {
        let known = |place: &Place| Some((place.ipcp?, place.name.clone()));
        let place = self.directory.borrow().get(&port).and_then(known);
        // A request that is gone: the manager has been told, the end is closed by dropping it.
        let Some((ipcp, name)) = place else { return };
        let answer = match answer {
            Ok(end) => {
                let attached = self.attach(ipcp, port, name, end);
                if let Err(reason) = &attached {
                    let reason = reason.clone();
                    self.events.put(Event::FlowClosed { port, reason });
                }
                attached
            }
            Err(reason) => Err(reason),
        };
        self.order(ipcp, Order::Respond { port, answer });
    }

    /// Joins two ends of this system.
    pub(super) fn relay(&mut self, a: FlowEnd, b: FlowEnd, port: PortId) -> Result<(), String> {
        let (window_a, window_b) = (window(&a), window(&b));
        let id_a = self.app_of(&a)?;
        let is_new = |end: &FlowEnd| !matches!(end, FlowEnd::Ipcp { .. });
        let (a_is_new, b_is_new) = (is_new(&a), is_new(&b));
        let id_b = match self.app_of(&b) {
            Ok(id) => id,
            Err(reason) => {
                if a_is_new {
                    self.engine.release(id_a);
                }
                return Err(reason);
            }
        };
        let to_b = self
            .engine
            .connect(id_a, id_b, Credit::Window(window_b), piece_max(window_b));
        let to_a = self
            .engine
            .connect(id_b, id_a, Credit::Window(window_a), piece_max(window_a));
        let holder = match self.seize(
            id_a,
            port,
            format!("relay {port} a"),
            (to_a, to_b),
            a,
            false,
        ) {
            Ok(holder) => holder,
            Err(error) => {
                if b_is_new {
                    self.engine.release(id_b);
                }
                self.engine.links().disconnect(to_a);
                self.engine.links().disconnect(to_b);
                return Err(error.to_string());
            }
        };
        if let Err(error) = self.seize(id_b, port, format!("relay {port} b"), (to_b, to_a), b, true)
        {
            // The first end is alive: it ends when it finds its input closed.
            let reason = error.to_string();
            self.engine
                .links()
                .close(to_a, Close::Refused(reason.clone()));
            self.engine.links().disconnect(to_b);
            return Err(reason);
        }
        let place = Place {
            ipcp: None,
            name: format!("relay {port}"),
            holder: Some(holder),
        };
        self.directory.borrow_mut().insert(port, place);
        Ok(())
    }

    pub(super) fn deallocate(&mut self, port: PortId, reason: String) {
        let (ipcp, holder) = match self.directory.borrow().get(&port) {
            Some(place) => (place.ipcp, place.holder.clone()),
            None => return,
        };
        match (holder, ipcp) {
            (Some(Holder::App(id, order)), _) => {
                *order.borrow_mut() = Some(reason);
                self.engine.wake(id);
            }
            (Some(Holder::Ipcp(upper, n1)), _) => {
                self.order_normal(upper, NormalOrder::Drop { n1, reason });
            }
            (None, Some(ipcp)) => self.order(ipcp, Order::Refuse { port, reason }),
            (None, None) => {}
        }
    }
}

/// The ring bytes that may be on their way to an end.
fn window(end: &FlowEnd) -> u64 {
    match end {
        FlowEnd::Ring(end) => window_of(end),
        FlowEnd::Socket(_) => SOCKET_WINDOW,
        FlowEnd::Ipcp { .. } => normal::N1_WINDOW,
    }
}
