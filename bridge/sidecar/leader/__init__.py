"""One entity's leader: its terms, takeovers and schedule, and what outlasts them."""
