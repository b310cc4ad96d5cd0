"""Help for the tests of applications: the pytest plugin `busbridge`, and containers."""
