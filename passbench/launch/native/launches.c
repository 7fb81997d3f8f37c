/* ---- Launches ---- */

typedef struct {
    Kernel *kernel;
    Py_ssize_t *numbers; /* its tensors by number */
    void *node;
    uint64_t *node_addresses; /* of the tensors that the node has, */
    int known;                /* if they are known */
} Step;

typedef struct {
    PyObject_HEAD
    Driver *driver;
    Py_ssize_t tensors, count;
    Step *steps;
    void *graph, *exec;
    int may_make; /* a graph of its own, which nobody has tried to make yet */
    PyObject *kept; /* what holds the kernels */
} Launches;

static int one_by_one(Launches *self, uint64_t *addresses, void *stream) {
    int error = 0;
    for (Py_ssize_t at = 0; !error && at < self->count; at++)
        error = start(self->steps[at].kernel, addresses, self->steps[at].numbers, stream);
    return error;
}

static NodeParameters parameters_of(Kernel *kernel, void **arguments) {
    NodeParameters given = {.function = kernel->function, .threads = {kernel->threads, 1, 1}, .shared = kernel->shared,
                            .arguments = arguments};
    for (int n = 0; n < 3; n++) given.grid[n] = kernel->grid[n];
    return given;
}

/* The next launches of the graph have these tensors at this step; earlier ones keep theirs. */
static int set_node(Launches *self, Step *step, uint64_t *addresses) {
    Kernel *kernel = step->kernel;
    int same = step->known;
    for (Py_ssize_t n = 0; n < kernel->tensors; n++) {
        uint64_t address = addresses[step->numbers[n]];
        same &= step->node_addresses[n] == address;
        step->node_addresses[n] = address;
    }
    if (same) return 0;
    void *arguments[kernel->tensors + kernel->others + 1];
    fill_arguments(kernel, addresses, step->numbers, arguments);
    NodeParameters given = parameters_of(kernel, arguments);
    int error = self->driver->set_parameters(self->exec, step->node, &given);
    step->known = !error;
    return error;
}

static int as_graph(Launches *self, uint64_t *addresses, void *stream) {
    int error = 0;
    for (Py_ssize_t at = 0; !error && at < self->count; at++) error = set_node(self, &self->steps[at], addresses);
    return error ? error : self->driver->launch_graph(self->exec, stream);
}

/* A graph of the steps, one after another. Where the driver makes none, launches go one by one from now on. */
static void make_graph(Launches *self, uint64_t *addresses) {
    void *last = NULL;
    if (self->driver->create_graph(&self->graph, 0)) {
        self->graph = NULL;
        return;
    }
    int error = 0;
    for (Py_ssize_t at = 0; !error && at < self->count; at++) {
        Step *step = &self->steps[at];
        void *arguments[step->kernel->tensors + step->kernel->others + 1];
        fill_arguments(step->kernel, addresses, step->numbers, arguments);
        NodeParameters given = parameters_of(step->kernel, arguments);
        error = self->driver->add_node(&step->node, self->graph, &last, at ? 1 : 0, &given);
        last = step->node;
    }
    if (error || self->driver->instantiate(&self->exec, self->graph, 0)) self->exec = NULL;
}

/* Whether a graph may be launched on the stream now. What is recorded must be the kernels. Stream 0 is that of the current
   device: there a graph of another device's kernels would not wait for the work before it. */
static int takes_a_graph(Launches *self, void *stream) {
    int recorded = 0, device = 0;
    if (self->driver->is_capturing(stream, &recorded) || recorded) return 0;
    return !self->driver->current_device(&device) && device == self->steps[0].kernel->device;
}

/* What makes a graph, and hands it to the device at its first launch, breaks a capture of another thread that forbids
   such things to all threads, unless this one is relaxed about it. */
static int make_and_launch(Launches *self, uint64_t *addresses, void *stream) {
    int mode = RELAXED, relaxed = !self->driver->exchange_mode(&mode);
    self->may_make = 0;
    if (relaxed) make_graph(self, addresses);
    int error = self->exec ? as_graph(self, addresses, stream) : one_by_one(self, addresses, stream);
    if (relaxed) self->driver->exchange_mode(&mode);
    return error;
}

static int launch_once(Launches *self, uint64_t *addresses, void *stream) {
    if (self->exec && !self->graph) return as_graph(self, addresses, stream); /* another's, with more than these steps */
    if ((self->exec || self->may_make) && takes_a_graph(self, stream)) {
        return self->exec ? as_graph(self, addresses, stream) : make_and_launch(self, addresses, stream);
    }
    return one_by_one(self, addresses, stream);
}

/* All launches, in order, for tensors at these addresses; -1 and an error if the driver refuses. No Python runs in
   between, so that no other thread sets a node before the graph is launched. */
static int launch_all(Launches *self, uint64_t *addresses, void *stream) {
    int error = launch_once(self, addresses, stream);
    if (error == INVALID_CONTEXT && !(error = set_context(self->driver, self->steps[0].kernel->device)))
        error = launch_once(self, addresses, stream);
    return error ? failed(self->driver, error, "a launch") : 0;
}

static PyObject *launches_run(Launches *self, PyObject *args) {
    PyObject *given;
    unsigned long long stream;
    if (!PyArg_ParseTuple(args, "O!K", &PyTuple_Type, &given, &stream)) return NULL;
    if (PyTuple_GET_SIZE(given) != self->tensors)
        return PyErr_Format(PyExc_TypeError, "launches on %zd tensors got %zd", self->tensors, PyTuple_GET_SIZE(given));
    uint64_t addresses[self->tensors + 1];
    if (read_addresses(given, addresses) < 0) return NULL;
    if (launch_all(self, addresses, (void *)(uintptr_t)stream) < 0) return NULL;
    Py_RETURN_NONE;
}

/* A step's tensors by number, each below `most`; NULL and an error if they are not the kernel's. */
static Py_ssize_t *numbers_of(PyObject *given, Kernel *kernel, Py_ssize_t most) {
    Py_ssize_t length = PyTuple_GET_SIZE(given), *numbers = PyMem_Calloc(length + 1, sizeof(Py_ssize_t));
    if (!numbers) return (Py_ssize_t *)PyErr_NoMemory();
    if (length != kernel->tensors) PyErr_SetString(PyExc_ValueError, "a step has not as many tensors as its kernel");
    for (Py_ssize_t n = 0; n < length && !PyErr_Occurred(); n++) {
        numbers[n] = PyLong_AsSsize_t(PyTuple_GET_ITEM(given, n));
        if (!PyErr_Occurred() && (numbers[n] < 0 || numbers[n] >= most))
            PyErr_SetString(PyExc_ValueError, "a step has a number of no tensor");
    }
    if (!PyErr_Occurred()) return numbers;
    PyMem_Free(numbers);
    return NULL;
}

static int set_steps(Launches *self, PyObject *steps) {
    Py_ssize_t count = PyTuple_GET_SIZE(steps);
    self->steps = PyMem_Calloc(count + 1, sizeof(Step));
    if (!self->steps) return PyErr_NoMemory(), -1;
    for (Py_ssize_t at = 0; at < count; at++) {
        PyObject *kernel, *numbers, *given = PyTuple_GET_ITEM(steps, at);
        if (!PyTuple_Check(given)) return PyErr_Format(PyExc_TypeError, "a step is a tuple"), -1;
        if (!PyArg_ParseTuple(given, "O!O!", kernel_type, &kernel, &PyTuple_Type, &numbers)) return -1;
        Step *step = &self->steps[at];
        self->count = at + 1;
        step->kernel = (Kernel *)kernel;
        step->numbers = numbers_of(numbers, step->kernel, self->tensors);
        if (!step->numbers) return -1;
        step->node_addresses = PyMem_Calloc(step->kernel->tensors + 1, sizeof(uint64_t));
        if (!step->node_addresses) return PyErr_NoMemory(), -1;
    }
    self->driver = self->steps[0].kernel->driver;
    return 0;
}

/* Another's graph, which has a node for each step: without it the steps would be launched alone. */
static int set_graph(Launches *self, PyObject *exec, PyObject *nodes) {
    if (PyTuple_GET_SIZE(nodes) != self->count)
        return PyErr_Format(PyExc_ValueError, "a graph has a node for each step"), -1;
    self->exec = PyLong_AsVoidPtr(exec);
    for (Py_ssize_t at = 0; at < self->count; at++)
        self->steps[at].node = PyLong_AsVoidPtr(PyTuple_GET_ITEM(nodes, at));
    if (!self->exec && !PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a graph has an address");
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *launches_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *steps, *exec = NULL, *nodes = NULL;
    Py_ssize_t tensors;
    int own;
    if (no_keywords(type, kwargs) < 0) return NULL;
    if (!PyArg_ParseTuple(args, "nO!p|O!O!", &tensors, &PyTuple_Type, &steps, &own, &PyLong_Type, &exec, &PyTuple_Type,
                          &nodes))
        return NULL;
    if (!PyTuple_GET_SIZE(steps)) return PyErr_Format(PyExc_ValueError, "Launches are at least one");
    if (tensors < 0 || tensors > MOST) return PyErr_Format(PyExc_ValueError, "Launches take at most %d tensors", MOST);
    if ((exec && !nodes) || (exec && own)) return PyErr_Format(PyExc_ValueError, "a graph has nodes, and one owner");
    Launches *self = (Launches *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->tensors = tensors, self->may_make = own;
    self->kept = Py_NewRef(args);
    if (set_steps(self, steps) == 0 && (!exec || set_graph(self, exec, nodes) == 0)) return (PyObject *)self;
    Py_DECREF(self);
    return NULL;
}

static void launches_dealloc(Launches *self) {
    PyTypeObject *type = Py_TYPE(self);
    if (self->graph) { /* its own; what the device still has to do of it is done */
        if (self->exec) self->driver->destroy_exec(self->exec);
        self->driver->destroy_graph(self->graph);
    }
    for (Py_ssize_t at = 0; at < self->count; at++) {
        PyMem_Free(self->steps[at].numbers);
        PyMem_Free(self->steps[at].node_addresses);
    }
    PyMem_Free(self->steps);
    Py_XDECREF(self->kept);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static PyMethodDef launches_methods[] = {
    {"run", (PyCFunction)launches_run, METH_VARARGS, "run(addresses, stream): for tensors at these addresses, aligned."},
    {NULL},
};

static PyType_Slot launches_slots[] = {
    {Py_tp_doc, "Launches(tensors, steps, own[, exec, nodes]): steps are of a Kernel and its tensors by number.\n\n"
                "One by one; `own`: as a graph of its own. With another's graph `exec` its `nodes` are set, a step's each, and\n"
                "it is launched."},
    {Py_tp_new, launches_new},
    {Py_tp_dealloc, launches_dealloc},
    {Py_tp_methods, launches_methods},
    {0},
};

static PyType_Spec launches_spec = {
    "passnet_launch.Launches", sizeof(Launches), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, launches_slots,
};
