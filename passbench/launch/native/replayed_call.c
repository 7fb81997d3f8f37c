/* ---- ReplayedCall ---- */

typedef struct {
    Call call;
    Py_ssize_t fixed;
    uint64_t *places; /* of the tensors behind the fresh ones */
    void *stream;
    int single; /* it returns the one fresh tensor, not a tuple of it */
    PyObject *same, *conditions;
} ReplayedCall;

/* 1 if every condition, a function with its arguments, says what it should; -1 and an error if one raises. */
static int all_hold(PyObject *conditions) {
    for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(conditions); n++) {
        PyObject *condition = PyTuple_GET_ITEM(conditions, n);
        PyObject *found = PyObject_CallObject(PyTuple_GET_ITEM(condition, 0), PyTuple_GET_ITEM(condition, 1));
        if (!found) return -1;
        int holds = PyObject_RichCompareBool(found, PyTuple_GET_ITEM(condition, 2), Py_EQ);
        Py_DECREF(found);
        if (holds <= 0) return holds;
    }
    return 1;
}

/* 1 if these are inputs as those that were recorded; -1 and an error. */
static int are_same(ReplayedCall *self, PyObject *const *inputs, size_t flags) {
    PyObject *found = PyObject_Vectorcall(self->same, inputs, flags, NULL);
    if (!found) return -1;
    int same = found == Py_True;
    Py_DECREF(found);
    return same;
}

static PyObject *replayed(PyObject *callable, PyObject *const *inputs, size_t flags, PyObject *names) {
    ReplayedCall *self = (ReplayedCall *)callable;
    Call *call = &self->call;
    if (!call->kept) return was_deleted(call);
    uint64_t addresses[call->launches->tensors + 1];
    int good = !names && PyVectorcall_NARGS(flags) == call->inputs;
    if (good) good = all_hold(self->conditions);
    if (good > 0) good = are_same(self, inputs, flags);
    if (good > 0) good = are_aligned(call, inputs, addresses);
    PyObject *results = good > 0 ? fresh_tensors(call, addresses) : NULL;
    memcpy(addresses + call->inputs + call->fresh, self->places, self->fixed * sizeof(uint64_t));
    if (results && launch_all(call->launches, addresses, self->stream) < 0) Py_CLEAR(results);
    if (!results) return by_otherwise(call, inputs, flags, names);
    return self->single ? only_one(results) : results;
}

static int set_places(ReplayedCall *self, PyObject *places) {
    self->fixed = PyTuple_GET_SIZE(places);
    self->places = PyMem_Calloc(self->fixed + 1, sizeof(uint64_t));
    if (!self->places) return PyErr_NoMemory(), -1;
    return read_addresses(places, self->places);
}

/* What was parsed, of a call of so many inputs; -1 and an error if it does not fit. `args` holds it. */
static int begin_replayed(ReplayedCall *self, PyObject *args, Py_ssize_t inputs, PyObject *places) {
    if (!all_of(self->conditions, 3)) return PyErr_Format(PyExc_ValueError, "conditions are tuples of three"), -1;
    if (begin_call(&self->call, replayed, args, inputs, PyTuple_GET_SIZE(places)) < 0) return -1;
    if (self->single && self->call.fresh != 1)
        return PyErr_Format(PyExc_ValueError, "a call of a single result has one layout"), -1;
    return set_places(self, places);
}

static PyObject *replayed_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *places, *owner; /* `owner` is kept with `args` */
    unsigned long long stream;
    Py_ssize_t inputs;
    if (no_keywords(type, kwargs) < 0) return NULL;
    ReplayedCall *self = (ReplayedCall *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    Call *call = &self->call;
    if (PyArg_ParseTuple(args, "nOO!O!pO!O!KOOO", &inputs, &self->same, &PyTuple_Type, &self->conditions, &PyTuple_Type,
                         &call->layouts, &self->single, &PyTuple_Type, &places, launches_type, &call->launches, &stream,
                         &call->empty, &owner, &call->otherwise)) {
        self->stream = (void *)(uintptr_t)stream;
        if (begin_replayed(self, args, inputs, places) == 0) return (PyObject *)self;
    }
    Py_DECREF(self);
    return NULL;
}

static void replayed_dealloc(ReplayedCall *self) {
    PyMem_Free(self->places);
    call_dealloc(&self->call);
}

static PyType_Slot replayed_slots[] = {
    {Py_tp_doc, "ReplayedCall(inputs, same, conditions, layouts, single, places, launches, stream, empty, owner, otherwise)"},
    {Py_tp_new, replayed_new},
    {Py_tp_dealloc, replayed_dealloc},
    {Py_tp_traverse, call_traverse},
    {Py_tp_clear, call_clear},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, call_members},
    {0},
};

static PyType_Spec replayed_spec = {"passnet_launch.ReplayedCall", sizeof(ReplayedCall), 0, CALL_FLAGS, replayed_slots};
