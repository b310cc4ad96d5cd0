"""Who may do what: verification of tokens and keys, by rules and issuers' keys of the moment."""
