"""Rules of subscriptions: filters select messages, actions change copies. Pure.

    rules        RuleSet: all rules of a topic against one message. Where to begin.
    message      what a filter sees of a message; values: of which types
    lexer, parser, expression            text -> tokens -> tree
    evaluation, operators, like          tree -> closures
    sql, correlation -> compiled         a filter ready to be evaluated, and its equality terms
    action, conversion -> changes        SET and REMOVE
    errors       InvalidRule (a rule that cannot be), FilterException (a message it fails on)

Source of every rule: Azure's pages on topic filters, SQL filter syntax and SQL action syntax; what
they leave open is decided in docs/filters.md.
"""
