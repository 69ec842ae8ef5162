"""No request keeps others waiting: the cases of `stalls`, at sizes that would hold the loop if work were not cut."""

from __future__ import annotations

import pytest

from tests.compat.servers import JETLAKE
from tests.compat.stalls import run

# Each at about the least size at which one turn of the loop took several times 20 ms before it was cut into slices,
# moved to a thread, or done by a better algorithm.
SIZES = {
    "direct_get_batch": 20_000,
    "direct_get_batch_of_a_filter": 60_000,
    "deep_json": 200_000,
    "long_nak": 20_000,
    "stream_with_many_subjects": 80_000,
    "consumer_with_many_filters": 100_000,
    "stream_info_of_subjects": 60_000,
    "stream_info_of_deleted": 100_000,
    "last_per_subject": 60_000,
    "many_subscriptions": 6_000,
    "many_subscriptions_end": 60_000,
    "pages_of_subscriptions": 60_000,
    "pages_of_connections": 60_000,
    "long_lists": 50_000,
    "stream_delete_with_consumers": 75_000,
    "long_pull": 150_000,
    "ack_all": 20_000,
    "interest_ends": 20_000,
    "interest_ends_by_filter": 20_000,
    "deliveries_given_up": 60_000,
    "redeliveries_at_once": 200_000,
    "purge_of_a_filter": 100_000,
    "purge_of_one_subject": 60_000,
    "purge_that_keeps": 40_000,
    "roll_up": 80_000,
    "ttl_expiry_at_once": 10_000,
    "delete_from_compressed": 60_000,
}


@pytest.mark.parametrize("name", SIZES)
def test_no_request_holds_the_event_loop(name: str) -> None:
    world = run(name, JETLAKE, SIZES[name])
    assert world.stalls == []
