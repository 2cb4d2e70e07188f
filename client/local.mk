# The hearth command.
