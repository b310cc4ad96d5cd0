"""What `busbridge relay check` finds out at the namespaces.

finding      a sentence about a place of the file
inspection   all findings about a file
dry_run      what would go, by a peek
"""
