# What is not code: the embedded model, units, completions, the two commands of the README.
EXTRA_DIST += .ci/run contrib/check contrib/setup.sh
