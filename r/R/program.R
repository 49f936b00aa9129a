# The program: where it is, and how it is called.


ulisse_binary <- function() {
  named <- Sys.getenv("ULISSE_BINARY")
  if (nzchar(named)) {
    if (!file.exists(named)) fail("", sprintf("ULISSE_BINARY names %s, which is not there", named))
    return(named)
  }
  exe <- if (.Platform$OS.type == "windows") "ulisse.exe" else "ulisse"
  own <- system.file("bin", exe, package = "ulisse")
  if (nzchar(own)) return(own)
  found <- unname(Sys.which("ulisse"))
  if (!nzchar(found))
    fail("", "there is no program ulisse: put it on the PATH, or name it in ULISSE_BINARY; a cluster needs none: give its address with cluster =")
  found
}

ulisse_available <- function() !inherits(try(ulisse_binary(), silent = TRUE), "try-error")

# Run the program to its end and return what it printed.
call_program <- function(args, generated = TRUE) {
  done <- processx::run(ulisse_binary(), args, error_on_status = FALSE)
  if (done$status != 0) fail_program(done$status, done$stderr, generated)
  done$stdout
}
