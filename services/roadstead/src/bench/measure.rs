//! Closed loops: each caller asks again as soon as it was answered.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::figure::Figure;

/// How long a loop runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measure {
    pub(crate) time: Duration,
}

/// What loops did.
#[derive(Debug)]
pub(crate) struct Ran {
    /// Of each call that was answered OK.
    pub(crate) took: Vec<Duration>,
    pub(crate) time: Duration,
    /// Calls that were refused, by code.
    pub(crate) errors: BTreeMap<String, u64>,
}

/// A call that can be made again and again.
pub(crate) trait AsyncCall: Send + 'static {
    fn call(&mut self) -> impl Future<Output = anyhow::Result<()>> + Send;
}

impl Measure {
    /// Runs `callers` loops of what `call` makes for each. A refusal by the API is counted; any other failure ends it.
    pub(crate) async fn run<F, C>(&self, what: &'static str, callers: usize, call: C) -> anyhow::Result<Figure>
    where
        C: Fn(usize) -> F,
        F: AsyncCall,
    {
        let began = Instant::now();
        let until = began + self.time;
        let mut loops = JoinSet::new();
        for at in 0..callers {
            loops.spawn(repeat(call(at), until));
        }
        let (mut took, mut errors) = (Vec::new(), BTreeMap::new());
        while let Some(done) = loops.join_next().await {
            let (answered, refused) = done??;
            took.extend(answered);
            for code in refused {
                *errors.entry(code).or_default() += 1;
            }
        }
        Ok(Figure::of(what, callers, Ran { took, time: began.elapsed(), errors }))
    }
}

async fn repeat(mut call: impl AsyncCall, until: Instant) -> anyhow::Result<(Vec<Duration>, Vec<String>)> {
    let (mut took, mut refused) = (Vec::new(), Vec::new());
    while Instant::now() < until {
        let sent = Instant::now();
        match call.call().await {
            Ok(()) => took.push(sent.elapsed()),
            Err(error) => match error.downcast::<tonic::Status>() {
                Ok(status) => refused.push(format!("{:?}", status.code())),
                Err(error) => return Err(error),
            },
        }
    }
    Ok((took, refused))
}
