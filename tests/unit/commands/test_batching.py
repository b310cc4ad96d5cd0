"""Every message is in one batch, in order, and no batch is too large."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.commands.batching import MESSAGES_MAX, OVERHEAD, RESERVED, Batching, Numbered
from bridge.remote.message import RemoteMessage
from bridge.wire.amqp10.message_properties import MessageProperties

MESSAGES = st.lists(
    st.tuples(st.integers(0, 300), st.sampled_from([None, "a", "b"])).map(
        lambda pair: RemoteMessage.of(
            data=b"x" * pair[0],
            properties=None if pair[1] is None else MessageProperties(group_id=pair[1]),
        )
    ),
    max_size=30,
)


def batches(
    messages: list[Numbered], bytes_max: int, messages_max: int = MESSAGES_MAX
) -> list[list[Numbered]]:
    """Return all batches of messages; the last one is what is left."""
    batching = Batching(bytes_max, messages_max)
    full = [found for each in messages if (found := batching.add(each))]
    rest = batching.rest()
    assert rest or not messages
    return [*full, rest] if rest else full


@given(
    messages=MESSAGES,
    bytes_max=st.integers(0, 900).map(lambda size: size and size + RESERVED),
    messages_max=st.integers(1, 9),
)
def test_batches_account_for_every_message(
    messages: list[RemoteMessage], bytes_max: int, messages_max: int
) -> None:
    """No message is lost, doubled or out of order; a message too large for others is alone."""
    given_ = [Numbered(at, "", each) for at, each in enumerate(messages, 1)]
    found = batches(given_, bytes_max, messages_max)
    assert [each for batch in found for each in batch] == given_
    for batch in found:
        sizes = [each.message.size_bytes + OVERHEAD for each in batch]
        assert len(batch) == 1 or sum(sizes) <= (bytes_max or 10**6) - RESERVED
        assert 1 <= len(batch) <= messages_max
        assert len({each.message.session_id for each in batch}) == 1


def test_small_messages_share_a_batch() -> None:
    """A transfer each would take a round trip each."""
    given_ = [Numbered(at, "", RemoteMessage.of(data=b"x")) for at in range(1_000)]
    assert [len(batch) for batch in batches(given_, 0)] == [500, 500]
