//! Runs a future on this thread, without a runtime.
//!
//! For in-memory adapters, whose futures are ready at the first poll. A future that waits for IO would make it spin,
//! so it isn't for adapters of real services.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// Polls the future until it is ready. Its waker does nothing: the future must not depend on being woken.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::yield_now(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::block_on;
    use std::future::poll_fn;
    use std::task::Poll;

    #[test]
    fn a_future_that_needs_several_polls_ends() {
        let mut left = 3;
        let polled = block_on(poll_fn(move |_| {
            left -= 1;
            if left == 0 { Poll::Ready("done") } else { Poll::Pending }
        }));
        assert_eq!(polled, "done");
    }
}
