//! Wake-ups of JavaScript by a lane ([`Waker`]), and references that keep the process alive
//! ([`Anchor`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use napi::bindgen_prelude::Function;
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Env, Result, Status};

/// Calls JavaScript with a lane's number, at most once for each lane at a time.
pub(crate) struct Waker {
    function: Wake,
    /// By lane: a call that has not begun yet. It will find all that was written before.
    is_called: Arc<[AtomicBool]>,
}

/// A function of JavaScript that does not keep the process alive.
type Wake = ThreadsafeFunction<u32, (), u32, Status, false, true>;

impl Waker {
    pub(crate) fn new(function: &Function<'_, u32, ()>, lanes: usize) -> Result<Arc<Self>> {
        let is_called: Arc<[AtomicBool]> = (0..lanes).map(|_| AtomicBool::new(false)).collect();
        let called = Arc::clone(&is_called);
        let function = function.build_threadsafe_function::<u32>().weak::<true>().build_callback(
            move |call| {
                // Before JavaScript looks at the ring, so that a later write calls again.
                if let Some(called) = called.get(call.value as usize) {
                    called.swap(false, Ordering::AcqRel);
                }
                Ok(call.value)
            },
        )?;
        Ok(Arc::new(Self { function, is_called }))
    }

    /// Called on the lane's thread.
    pub(crate) fn wake(&self, lane: u32) {
        let Some(called) = self.is_called.get(lane as usize) else { return };
        if !called.swap(true, Ordering::AcqRel) {
            // When Node is closing there is no JavaScript to wake.
            self.function.call(lane, ThreadsafeFunctionCallMode::NonBlocking);
        }
    }
}

/// Keeps the process alive, or does not. It never calls anything.
pub(crate) struct Anchor(ThreadsafeFunction<u32, (), u32, Status, false, false>);

impl Anchor {
    pub(crate) fn new(function: &Function<'_, u32, ()>) -> Result<Self> {
        let function = function.build_threadsafe_function::<u32>();
        function.build_callback(|call| Ok(call.value)).map(Self)
    }

    #[expect(deprecated, reason = "the only way to do it at any time and any number of times")]
    pub(crate) fn hold(&mut self, env: &Env) -> Result<()> {
        self.0.refer(env)
    }

    #[expect(deprecated, reason = "as above")]
    pub(crate) fn release(&mut self, env: &Env) -> Result<()> {
        self.0.unref(env)
    }
}
