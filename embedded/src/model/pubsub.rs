//! Publish and subscribe: SUBSCRIBE, UNSUBSCRIBE, PUBLISH.
//!
//! Layer: sans-IO. A message for another connection is a [`Delivery`], which the caller of
//! [`Server::execute`](super::Server::execute) delivers. A message for the publisher's own
//! connection goes into its reply stream.

use super::call::Call;
use super::channels::Delivery;
use super::flavor::Flavor;
use super::reply::Reply;

/// `SUBSCRIBE channel ..`
pub(super) fn subscribe(call: &mut Call<'_>) {
    for channel in call.args.from(1) {
        if !call.session.channels.iter().any(|own| own == channel) {
            call.server.channels.add(channel, call.session);
            call.session.channels.push(channel.to_vec());
        }
        confirm(call, "subscribe", Some(channel));
    }
}

/// `UNSUBSCRIBE [channel ..]`: without a name, from all channels.
pub(super) fn unsubscribe(call: &mut Call<'_>) {
    let args = call.args;
    if args.len() > 1 {
        for channel in args.from(1) {
            call.session.channels.retain(|own| own != channel);
            call.server.channels.remove(channel, call.session.id);
            confirm(call, "unsubscribe", Some(channel));
        }
        return;
    }
    if call.session.channels.is_empty() {
        return confirm(call, "unsubscribe", None);
    }
    while let Some(channel) = call.session.channels.pop() {
        call.server.channels.remove(&channel, call.session.id);
        confirm(call, "unsubscribe", Some(&channel));
    }
}

fn confirm(call: &mut Call<'_>, what: &str, channel: Option<&[u8]>) {
    let count = call.session.channels.len();
    let mut reply = call.reply();
    reply.push(3);
    reply.text(what);
    match channel {
        Some(channel) => reply.bulk(channel),
        None => reply.null(),
    }
    reply.count(count);
}

/// `PUBLISH channel message`
pub(super) fn publish(call: &mut Call<'_>) {
    let count = send(call, call.args.at(1), call.args.at(2));
    call.reply().count(count);
}

/// Sends a message to the subscribers of a channel. Returns how many there are.
pub(super) fn send(call: &mut Call<'_>, channel: &[u8], message: &[u8]) -> usize {
    let own_id = call.session.id;
    let mut own = Vec::new();
    let channels = &mut call.server.channels;
    let subscribers = channels.subscribers.get(channel).map_or(&[][..], Vec::as_slice);
    let count = subscribers.len();
    for subscriber in subscribers {
        let mut bytes = Vec::new();
        let mut reply = Reply::new(&mut bytes, subscriber.resp3);
        reply.push(3);
        reply.text("message");
        reply.bulk(channel);
        reply.bulk(message);
        if subscriber.session == own_id {
            own = bytes;
        } else {
            channels.deliveries.push(Delivery { session: subscriber.session, bytes });
        }
    }
    // In Redis 7.0 a message on the publisher's own channel comes before the reply.
    let is_first = call.server.flavor == Flavor::Redis70;
    let place = if is_first { &mut *call.out } else { &mut *call.pushes };
    place.append(&mut own);
    count
}
