//! `serve` against pods that do exactly what a test says, over real sockets.

mod broken_streams;
mod door;
mod faults;
mod front;
mod in_parts;
mod leaving;
mod migrating;
mod passing;
mod random_losses;
mod scene;
