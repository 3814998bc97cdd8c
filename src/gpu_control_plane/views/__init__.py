"""What people see: rows, figures and to-do lists, as pure functions of objects. The commands, the pages of the console
and its API call the same ones."""
