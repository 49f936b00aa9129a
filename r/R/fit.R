# ulisse(): a formula, a data frame, and a fit with the methods that R users know.

ulisse <- function(formula, data, kernel = NULL, ard = NULL, mean = NULL, noise = NULL, priors = NULL, likelihood = NULL, link = NULL,
                   level = NULL, df = NULL, weights = NULL, offset = NULL, trials = NULL, transform = NULL, categories = NULL,
                   chains = NULL, draws = NULL, seed = NULL, max_time = NULL, rhat = NULL, ess = NULL, spec = list(), cluster = NULL, folder = NULL,
                   threads = NULL, progress = interactive()) {
  call <- match.call()
  said <- said_of_rows(data, noise, weights, offset, trials)
  model <- frame_of(formula, data, said)
  columns <- model$columns
  base <- list(
    name = "gp",
    data = list(path = "table", target = model$target, inputs = if (!is.null(model$inputs)) I(model$inputs),
      categories = if (length(categories)) I(categories), levels = order_of(model, likelihood), transform = transform, weights = columns$weights, offset = columns$offset, trials = columns$trials),
    model = list(kernel = kernel, ard = ard, likelihood = likelihood, link = link, level = level, df = df, mean = mean,
      noise = replace(if (is.list(noise)) noise else list(), "column", list(columns$noise)), priors = if (length(priors)) as.list(priors)),
    sampler = list(chains = chains, draws = draws),
    stop = list(max_time = duration(max_time), rhat = rhat, ess = ess),
    seed = seed
  )
  whole <- utils::modifyList(without_null(base), spec)
  job <- if (is.null(cluster)) ulisse_run(whole, model$data, folder, threads) else ulisse_submit(whole, model$data, cluster)
  fit <- structure(class = "ulisse_fit", list(call = call, formula = model$formula, terms = model$terms, xlevels = model$xlevels,
    data = model$data, target = model$target, columns = columns, job = job, progress = progress, likelihood = whole$model$likelihood))
  finish_fit(fit)
}

# The classes of a target that is a factor, as data.levels has them: in order, or the levels that any factor has.
order_of <- function(model, likelihood) {
  y <- if (is.data.frame(model$data)) model$data[[model$target]]
  if (identical(likelihood, "ordinal") && is.ordered(y) || identical(likelihood, "categorical") && is.factor(y)) stats::setNames(list(I(levels(y))), model$target)
}

# Wait for the end of a run, and keep its results.
finish_fit <- function(fit) {
  ulisse_watch(fit$job, fit$progress)
  if (job_status(fit$job)$state %in% ended_states) {
    if (inherits(fit$job, "ulisse_local")) local_keep(fit$job) else job_frame(fit$job)
  }
  invisible(fit)
}

roles <- c("noise", "weights", "offset", "trials")

# What is said of each row beside its inputs: the columns that have it, by role, and the table of those that were given as vectors.
said_of_rows <- function(data, noise, weights, offset, trials) {
  by <- if (is.list(noise)) noise$by
  given <- list(noise = if (is.list(noise)) noise$column else noise, weights = weights, offset = offset, trials = trials)
  given <- Filter(Negate(is.null), given)
  vectors <- list()
  columns <- list()
  for (role in names(given)) {
    x <- given[[role]]
    columns[[role]] <- x
    if (is.character(x) && length(x) == 1) {
      if (is.data.frame(data) && !x %in% names(data)) fail("bad_input", sprintf("%s: data has no column %s: it has %s", role, x, paste(names(data), collapse = ", ")))
      next
    }
    if (!is.data.frame(data)) fail("bad_input", paste0(role, ": of a table in a file name the column"))
    columns[[role]] <- utils::tail(make.unique(c(names(data), names(vectors), role), "_"), 1)
    vectors[[columns[[role]]]] <- row_values(x, role, nrow(data))
  }
  list(columns = columns, vectors = vectors, by = by)
}

row_values <- function(x, role, rows) {
  if (!(is.numeric(x) || is.logical(x))) fail("bad_input", paste0(role, ": give the name of a column, or a number for each row"))
  if (length(x) != rows) fail("bad_input", sprintf("%s: there are %d values for %d rows", role, length(x), rows))
  if (!all(is.finite(x))) fail("bad_input", paste0(role, ": a value is missing or infinite: drop those rows, or fill them in"))
  as.numeric(x)
}

# The columns that a formula names, evaluated, and those with what is said of each row.
frame_of <- function(formula, data, said) {
  if (!inherits(formula, "formula") || length(formula) != 3) fail("bad_input", "formula: give one with both sides, as in y ~ a + b")
  if (is.character(data)) { # the path of a table, which the program reads
    vars <- all.vars(formula[[3]])
    target <- all.vars(formula[[2]])
    if ("offset" %in% all.names(formula[[3]])) fail("bad_input", "formula: of a table in a file name the column of the offset: offset =")
    if (length(target) != 1 || !is.name(formula[[2]])) fail("bad_input", "formula: of a table in a file the columns are named as they are")
    return(list(formula = formula, target = target, inputs = if (!"." %in% vars) vars, data = data, columns = said$columns))
  }
  columns <- said$columns
  beside <- c(unlist(columns), said$by)
  terms <- stats::terms(formula, data = data[setdiff(names(data), beside)]) # what "." stands for
  if (any(attr(terms, "order") > 1)) fail("bad_input", "formula: a Gaussian process finds interactions by itself: name the inputs only, as in y ~ a + b")
  frame <- stats::model.frame(terms, data, na.action = stats::na.pass)
  if (NCOL(frame[[1]]) != 1) fail("bad_input", "formula: there is one target: each has a fit of its own, and successes have trials =")
  at <- attr(terms, "offset")
  if (length(at) + length(columns$offset) > 1) fail("bad_input", "formula: give one offset, their sum")
  if (length(at)) columns$offset <- names(frame)[[at]]
  used <- if (length(attr(terms, "factors"))) rowSums(attr(terms, "factors"))[-1] > 0 else FALSE # y ~ . - a keeps a among its variables
  if (!any(used)) fail("bad_input", "formula: name an input at least, as in y ~ a")
  whole <- frame[c(TRUE, used | names(frame)[-1] %in% columns$offset)]
  list(formula = stats::formula(terms), terms = attr(frame, "terms"), target = names(frame)[[1]], inputs = names(frame)[-1][used],
    data = with_columns(with_columns(whole, data, beside), said$vectors, names(said$vectors)), columns = columns,
    xlevels = stats::.getXlevels(attr(frame, "terms"), frame))
}

# The rows with these columns of a table, as far as it has them.
with_columns <- function(rows, table, names) {
  for (name in intersect(names, names(table))) rows[[name]] <- table[[name]]
  rows
}

# The rows of newdata as the fit knows them, and what is said of each; with the target, where it can be computed.
rows_of <- function(fit, newdata, latent, ...) {
  rows <- formula_rows(fit, newdata)
  given <- list(...)
  for (role in names(given)) {
    if (!role %in% roles) fail("bad_input", sprintf("%s: of rows there are %s", role, paste(roles, collapse = ", ")))
    if (is.null(fit$columns[[role]])) fail("bad_input", paste0(role, ": the fit had none"))
    rows[[fit$columns[[role]]]] <- row_values(given[[role]], role, nrow(rows))
  }
  for (role in intersect(c("offset", if (!latent) "noise"), names(fit$columns)))
    if (!fit$columns[[role]] %in% names(rows))
      fail("bad_input", sprintf("%s: the fit had one of each row: give those of newdata, in a column %s or by %s =", role, fit$columns[[role]], role))
  rows
}

formula_rows <- function(fit, newdata) {
  if (is.null(newdata)) {
    if (is.character(fit$data)) return(utils::read.csv(fit$data, check.names = FALSE))
    return(fit$data)
  }
  if (is.null(fit$terms)) return(newdata)
  rows <- stats::model.frame(stats::delete.response(fit$terms), newdata, na.action = stats::na.pass, xlev = fit$xlevels)
  y <- tryCatch(eval(fit$formula[[2]], newdata, environment(fit$formula)), error = function(e) NULL)
  if ((is.atomic(y) || is.factor(y)) && length(y) == nrow(rows)) rows[[fit$target]] <- y
  with_columns(rows, newdata, setdiff(names(newdata), names(rows))) # the run takes those that it knows
}

duration <- function(x) {
  if (is.null(x) || is.character(x)) return(x)
  seconds <- if (inherits(x, "difftime")) as.numeric(x, units = "secs") else x
  if (!is.numeric(seconds) || !isTRUE(seconds >= 0)) fail("bad_input", "max_time: give seconds, a difftime, or text such as \"1h30m\"")
  paste0(format(seconds, scientific = FALSE, trim = TRUE), "s")
}

without_null <- function(x) {
  if (!is.list(x) || inherits(x, "AsIs")) return(x)
  x <- lapply(x, without_null)
  Filter(function(v) !is.null(v) && !(is.list(v) && !length(v)), x)
}

print.ulisse_fit <- function(x, digits = 3, ...) {
  cat("Gaussian process: ", paste(deparse(x$formula), collapse = " "), "\n", sep = "")
  status <- job_status(x$job)
  cat(describe_status(status), "\n", sep = "")
  if (status$state %in% c("converged", "unconverged")) {
    s <- summary(x)
    cat("\n")
    shown <- s[!startsWith(s$name, "log_"), intersect(c("mean", "sd", "q5", "q95", "ess_bulk", "rhat"), names(s))]
    print(format(signif(shown, digits), drop0trailing = TRUE), quote = FALSE)
  }
  invisible(x)
}

summary.ulisse_fit <- function(object, ...) summary(object$job, ...)

coef.ulisse_fit <- function(object, ...) {
  s <- summary(object)
  s <- s[!startsWith(s$name, "log_"), ]
  stats::setNames(s$mean, s$name)
}

nobs.ulisse_fit <- function(object, ...) job_summary(object$job)$n

formula.ulisse_fit <- function(x, ...) x$formula

predict.ulisse_fit <- function(object, newdata = NULL, probs = c(0.025, 0.975), latent = FALSE, draws = NULL, type = c("response", "prob", "class"), ...) {
  type <- match.arg(type)
  if (type != "response" && !isTRUE(object$likelihood %in% c("bernoulli", "ordinal", "categorical")))
    fail("bad_input", sprintf("type: \"%s\" is of classes: likelihood \"bernoulli\", \"ordinal\" or \"categorical\"", type))
  p <- predict(object$job, rows_of(object, newdata, latent && type == "response", ...), probs, latent && type == "response", draws)
  attr(p, "log_density") <- NULL
  if (type == "response") return(p)
  classes <- job_info(object$job)$classes
  if (is.null(classes)) classes <- c("0", "1")
  shares <- if (length(classes) == 2 && is.numeric(p$Estimate)) cbind(1 - p$Estimate, p$Estimate) else as.matrix(p[sprintf("p[%s]", classes)])
  dimnames(shares) <- list(NULL, classes)
  if (type == "prob") shares else likeliest(shares, classes)
}

fitted.ulisse_fit <- function(object, ...) predict(object, probs = numeric())$Estimate

residuals.ulisse_fit <- function(object, ...) {
  if (identical(object$likelihood, "categorical")) fail("bad_input", "classes without an order have no residuals: see predict(type = \"prob\")")
  target_of(job_info(object$job), rows_of(object, NULL, FALSE)) - fitted(object)
}

log_score <- function(object, newdata, ...) {
  density <- attr(predict(object$job, rows_of(object, newdata, FALSE, ...), numeric()), "log_density")
  if (is.null(density)) fail("bad_input", sprintf("newdata: the target %s is not known there", object$target))
  mean(density)
}

update.ulisse_fit <- function(object, formula., ..., evaluate = TRUE) {
  call <- object$call
  if (!missing(formula.)) call$formula <- stats::update(formula(object), formula.)
  more <- match.call(expand.dots = FALSE)$...
  for (name in names(more)) call[[name]] <- more[[name]]
  if (evaluate) eval(call, parent.frame()) else call
}

as_draws.ulisse_fit <- function(x, ...) as_draws_df(x$job)
as_draws_df.ulisse_fit <- function(x, ...) as_draws_df(x$job)
as_draws_array.ulisse_fit <- function(x, ...) as_draws_array(x$job)
as_draws_matrix.ulisse_fit <- function(x, ...) as_draws_matrix(x$job)
as_draws_rvars.ulisse_fit <- function(x, ...) as_draws_rvars(x$job)

plot.ulisse_fit <- function(x, variable = NULL, ...) {
  d <- as_draws_df(x)
  names <- posterior::variables(d)
  if (is.null(variable)) variable <- names[!startsWith(names, "log_")]
  chosen <- names[names %in% variable | sub("\\[.*", "", names) %in% variable]
  if (!length(chosen)) fail("bad_input", sprintf("variable: there is no %s: there are %s", paste(variable, collapse = ", "), paste(names, collapse = ", ")))
  shown <- utils::head(chosen, 6)
  old <- graphics::par(mfrow = c(length(shown), 2), mar = c(2, 4, 1, 1))
  on.exit(graphics::par(old))
  colours <- grDevices::hcl.colors(max(2, posterior::nchains(d)), "Dark 3")
  for (name in shown) {
    values <- split(d[[name]], d$.chain)
    graphics::plot(stats::density(d[[name]]), main = "", ylab = name, xlab = "", ...)
    graphics::matplot(do.call(cbind, values), type = "l", lty = 1, lwd = 0.5, col = colours, ylab = "", xlab = "")
  }
  if (length(chosen) > length(shown)) message(sprintf("%d more: choose with variable =", length(chosen) - length(shown)))
  invisible(x)
}
