# What is not code: the embedded model, units, completions, the two commands of the README.
