# Tests: each is a program that speaks TAP through cmocka (CMOCKA_MESSAGE_OUTPUT=TAP), run by automake's harness.
