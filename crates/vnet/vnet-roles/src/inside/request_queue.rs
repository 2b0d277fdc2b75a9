//! Requests that wait at a PIP for the agents of its hosts to fetch them, and their callers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use carina_api::{ErrorBody, ErrorCode};
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::{Answer, NetworkRequest};

/// An agent's reply. Its text contains no host name.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// The request was carried out.
    Answer(Answer),
    /// The request was refused.
    Refusal(ErrorBody),
}

/// The requests at a PIP that wait for the agents of its hosts, and those who wait for the answers.
#[derive(Debug, Default)]
pub struct RequestQueue {
    state: Mutex<State>,
    came: Notify,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// Requests that have not been fetched yet, by host.
    waiting: BTreeMap<String, VecDeque<(u64, NetworkRequest)>>,
    /// Requests without an answer, by number: the host, and the caller that waits.
    asked: BTreeMap<u64, (String, oneshot::Sender<Reply>)>,
    /// When each host last fetched requests.
    fetched: BTreeMap<String, Instant>,
}

impl RequestQueue {
    /// Queues a request until the agent of a host fetches it, and waits for the agent's answer.
    ///
    /// # Errors
    /// The agent has not fetched requests recently, too many requests wait for it, it refuses, or
    /// it does not answer in time.
    pub async fn ask(&self, host: &str, wanted: NetworkRequest) -> Result<Answer, ErrorBody> {
        let limit = wanted.ask.limit();
        let (reply, replied) = oneshot::channel();
        let number = {
            let mut state = self.lock();
            let is_fetching = state
                .fetched
                .get(host)
                .is_some_and(|at| at.elapsed() < ABSENT);
            if !is_fetching {
                let what = "the node's host does not answer";
                return Err(ErrorBody::new(ErrorCode::TimedOut, what));
            }
            let number = state.next;
            state.next += 1;
            let waiting = state.waiting.entry(host.to_owned()).or_default();
            let asker = wanted.who.last();
            let of_asker = waiting
                .iter()
                .filter(|(_, request)| request.who.last() == asker);
            let has = of_asker.count();
            if has >= OF_ONE_MAX {
                let what = format!(
                    "{has} requests of this customer of the provider wait for the node's host, \
                     and the limit is {OF_ONE_MAX}; try again"
                );
                return Err(ErrorBody::new(ErrorCode::LimitReached, what));
            }
            if waiting.len() >= WAITING_MAX {
                let what = "the node's host is overloaded; try again";
                return Err(ErrorBody::new(ErrorCode::LimitReached, what));
            }
            waiting.push_back((number, wanted));
            state.asked.insert(number, (host.to_owned(), reply));
            number
        };
        // If the caller stops waiting, the request is dropped, unless it was fetched already.
        let _asked = Asked {
            queue: self,
            number,
        };
        self.came.notify_waiters();
        match tokio::time::timeout(limit, replied).await {
            Ok(Ok(Reply::Answer(answer))) => Ok(answer),
            Ok(Ok(Reply::Refusal(refusal))) => Err(refusal),
            _ => {
                let what = "the node's host did not answer in time";
                Err(ErrorBody::new(ErrorCode::TimedOut, what))
            }
        }
    }

    /// Returns the requests that wait for a host's agent, each with its number. If no request waits
    /// yet, this call waits for one for up to `wait`; the list may then be empty.
    pub async fn fetch(&self, host: &str, wait: Duration) -> Vec<(u64, NetworkRequest)> {
        let deadline = Instant::now() + wait;
        loop {
            let came = self.came.notified();
            {
                let mut state = self.lock();
                state.fetched.insert(host.to_owned(), Instant::now());
                let waiting = state.waiting.get_mut(host);
                let asks: Vec<_> = waiting.map(std::mem::take).unwrap_or_default().into();
                if !asks.is_empty() {
                    return asks;
                }
            }
            if Instant::now() >= deadline {
                return Vec::new();
            }
            let again = deadline.min(Instant::now() + ABSENT / 2);
            // After a notification or a timeout, the requests are checked again.
            let _ = tokio::time::timeout_at(again, came).await;
        }
    }

    /// Passes the answer of a host's agent to request `number` on to the party that waits for it.
    /// Discards an answer to a request of another host, or one that arrives too late.
    pub fn answer(&self, host: &str, number: u64, reply: Reply) {
        let mut state = self.lock();
        if state
            .asked
            .get(&number)
            .is_some_and(|(asked, _)| asked == host)
            && let Some((_, waits)) = state.asked.remove(&number)
        {
            // The caller may stop waiting at the same moment.
            let _ = waits.send(reply);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every critical section leaves the state consistent, even after a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request for which a caller waits. Dropping it removes the request.
struct Asked<'a> {
    queue: &'a RequestQueue,
    number: u64,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.asked.remove(&self.number);
        for waiting in state.waiting.values_mut() {
            waiting.retain(|(number, _)| *number != self.number);
        }
    }
}

/// Largest number of requests that wait for one host.
const WAITING_MAX: usize = 64;
/// Largest number of waiting requests of one VNP, so that requests of other VNPs have room.
const OF_ONE_MAX: usize = WAITING_MAX / 2;
/// Time without a fetch after which a host counts as absent.
const ABSENT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use carina_vnet::host_part::VnetId;

    use super::*;
    use crate::inside::NodeRequest;

    fn wanted() -> NetworkRequest {
        NetworkRequest {
            vnet: VnetId::new(1),
            ask: NodeRequest::Look {},
            who: Vec::new(),
        }
    }

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_time().build().unwrap();
        runtime.block_on(test);
    }

    #[test]
    fn host_answers_what_it_was_asked_and_nothing_else() {
        run(async {
            let queue = Arc::new(RequestQueue::default());
            let absent = queue.ask("h1", wanted()).await.unwrap_err();
            assert!(absent.message.contains("does not answer"), "{absent}");
            assert!(queue.fetch("h1", Duration::ZERO).await.is_empty());
            let asks = tokio::spawn({
                let queue = Arc::clone(&queue);
                async move { queue.ask("h1", wanted()).await }
            });
            let fetched = queue.fetch("h1", Duration::from_secs(5)).await;
            let [(number, ask)] = &fetched[..] else {
                panic!("{fetched:?}");
            };
            assert_eq!(*ask, wanted());
            queue.answer("h2", *number, Reply::Answer(Answer::Echo { rtt_ns: 1 }));
            queue.answer("h1", *number + 1, Reply::Answer(Answer::Echo { rtt_ns: 2 }));
            queue.answer("h1", *number, Reply::Answer(Answer::Done {}));
            assert_eq!(asks.await.unwrap().unwrap(), Answer::Done {});
            assert!(queue.lock().asked.is_empty());
        });
    }

    #[test]
    fn vnp_that_asks_too_much_keeps_no_other_out() {
        run(async {
            let queue = Arc::new(RequestQueue::default());
            queue.fetch("h1", Duration::ZERO).await;
            let of = |vnp: &str| NetworkRequest {
                who: vec!["vno acme".to_owned(), vnp.to_owned()],
                ..wanted()
            };
            let begin = |vnp: &str| {
                let (queue, wanted) = (Arc::clone(&queue), of(vnp));
                tokio::spawn(async move { queue.ask("h1", wanted).await })
            };
            let asks: Vec<_> = (0..OF_ONE_MAX).map(|_| begin("vnp a")).collect();
            while queue.lock().asked.len() < OF_ONE_MAX {
                tokio::task::yield_now().await;
            }
            let refusal = queue.ask("h1", of("vnp a")).await.unwrap_err();
            assert_eq!(refusal.code, ErrorCode::LimitReached);
            assert!(refusal.message.starts_with("32 requests"), "{refusal}");
            let other = begin("vnp b");
            while queue.lock().asked.len() == OF_ONE_MAX {
                tokio::task::yield_now().await;
            }
            for (number, _) in queue.fetch("h1", Duration::ZERO).await {
                queue.answer("h1", number, Reply::Answer(Answer::Done {}));
            }
            for ask in asks.into_iter().chain([other]) {
                assert_eq!(ask.await.unwrap().unwrap(), Answer::Done {});
            }
        });
    }

    #[test]
    fn ask_that_no_one_waits_for_is_not_carried_out() {
        run(async {
            let queue = RequestQueue::default();
            queue.fetch("h1", Duration::ZERO).await;
            let asks = queue.ask("h1", wanted());
            let late = tokio::time::timeout(Duration::from_millis(20), asks).await;
            assert!(late.is_err());
            assert!(queue.lock().waiting["h1"].is_empty() && queue.lock().asked.is_empty());
        });
    }
}
