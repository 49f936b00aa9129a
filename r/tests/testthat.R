library(testthat)
library(ulisse)

test_check("ulisse")
