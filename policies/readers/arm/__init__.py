"""ARM templates: the expression language, its functions, and the resources of a template."""
