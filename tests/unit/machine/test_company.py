"""Company: others are seen in what RabbitMQ says of the queue, and only then."""

from __future__ import annotations

from bridge.machine.company import Company


def test_a_consumer_that_two_looks_have_found_is_there() -> None:
    """One that only one look has found may be this process's own, just cancelled."""
    company = Company()
    assert not company.looked(1, 10, is_quiet=False)
    assert company.looked(1, 10, is_quiet=False)


def test_the_two_looks_follow_each_other() -> None:
    """Else they have found two things that went by."""
    company = Company()
    for others in (1, 0, 1, 0):
        assert not company.looked(others, 10, is_quiet=False)
    company.looked(1, 10, is_quiet=False)
    company.forget()
    assert not company.looked(1, 10, is_quiet=False)


def test_fewer_messages_than_before_are_somebody_s_gets() -> None:
    """Unless something came here meanwhile, or may have expired."""
    company = Company()
    assert not company.looked(0, 10, is_quiet=True)
    assert not company.looked(0, 10, is_quiet=True)
    assert not company.looked(0, 9, is_quiet=False)
    assert company.looked(0, 8, is_quiet=True)
    company.forget()
    assert not company.looked(0, 5, is_quiet=True)
