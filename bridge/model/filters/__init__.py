"""Rules of subscriptions: filters select messages, actions change copies. Pure.

    rules        RuleSet: all rules of a topic against one message. Where to begin.
    message      a message as filters see it; values: the types of its values
    lexer, parser, expression            text -> tokens -> tree
    evaluation, operators, like          tree -> closures
    sql, correlation -> compiled         a filter ready to be evaluated, and its equality terms
    action, conversion -> changes        SET and REMOVE
    errors       InvalidRule (an invalid rule), FilterException (a message that a rule fails on)

Source of every rule: Azure's pages on topic filters, SQL filter syntax and SQL action syntax;
questions that they leave open are decided in docs/filters.md.
"""
