//! Building the apps of a graph without running it.

use carina_frame::{Pool, PoolConfig};

use crate::app::{AnyConfig, AppContext, AppError, Outside, ShortFrames};
use crate::configure_error::{ConfigureError, WorkerError};
use crate::counter_file::CounterFile;
use crate::graph::Graph;
use crate::notices::Notices;

impl Graph {
    /// Checks the graph like [`Workers::configure`](crate::Workers::configure), and builds
    /// its apps, except those with an effect [outside](Outside) of the process. A graph that it
    /// accepts can run if its devices, sockets and written files are available. The pool's frames
    /// have `frame_bytes` bytes.
    ///
    /// # Errors
    /// The error that `Workers::configure` would return.
    pub fn rehearse(&self, frame_bytes: usize) -> Result<(), ConfigureError> {
        self.check()?;
        let start = |source: WorkerError| ConfigureError::Start { worker: 0, source };
        let pool = PoolConfig {
            frames: FRAMES,
            frame_bytes,
        };
        let pool = Pool::new(pool).map_err(|error| start(error.into()))?;
        let counters = CounterFile::private().map_err(|error| start(error.into()))?;
        let notices = Notices::default();
        for (name, app) in &self.apps {
            let config = &app.config;
            let mut context = AppContext {
                name,
                pool: &pool,
                counters: &counters,
                notices: &notices,
                running: None,
                opened: None,
            };
            let made = match config.outside_any() {
                Outside::Nothing => config.build_any(&mut context).map(drop),
                Outside::Something => check(&**config, frame_bytes),
            };
            made.map_err(|source| ConfigureError::App {
                name: name.clone(),
                kind: config.kind(),
                source,
            })?;
        }
        Ok(())
    }
}

fn check(config: &dyn AnyConfig, has: usize) -> Result<(), AppError> {
    config.check_any()?;
    let needed = config.frame_bytes_any();
    if needed > has {
        Err(ShortFrames { needed, has }.into())
    } else {
        Ok(())
    }
}

/// Number of frames of the pool. Apps keep some from their first call on.
const FRAMES: usize = 64;
