package auth

import (
	"google.golang.org/protobuf/proto"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/state"
)

// Rule says who may call an RPC.
type Rule struct {
	Public bool       // everybody, without a word on who they are
	Role   state.Role // users of this role or one above; none means no users
	// Whole asks for all namespaces: it is the cluster that is looked into or
	// changed.
	Whole bool
	Nodes []Node
	// Job returns the job that a request names, which has to be in a namespace of
	// the caller's.
	Job func(proto.Message) string
	// Own: it has to be the caller's own job, or the caller an admin.
	Own bool
	// Change: calls are in the audit log also if they were allowed.
	Change bool
}

// job is the id of a request that names a job by it.
func job(m proto.Message) string {
	if r, ok := m.(interface{ GetId() string }); ok {
		return r.GetId()
	}
	return ""
}

// Rules are the rules of all RPCs. A method that has none is refused, and a test
// over all that are registered fails. What a coordinator may read of jobs is for
// its dashboard, which follows a job once for all who look at it, and asks for
// each of them whether they may.
var Rules = map[string]Rule{
	pb.Jobs_Submit_FullMethodName:  {Role: state.Submitter, Change: true},
	pb.Jobs_Get_FullMethodName:     {Role: state.Viewer, Job: job, Nodes: []Node{Coordinator}},
	pb.Jobs_List_FullMethodName:    {Role: state.Viewer}, // those of the caller's namespaces
	pb.Jobs_Pause_FullMethodName:   {Role: state.Submitter, Job: job, Own: true, Change: true},
	pb.Jobs_Resume_FullMethodName:  {Role: state.Submitter, Job: job, Own: true, Change: true},
	pb.Jobs_Cancel_FullMethodName:  {Role: state.Submitter, Job: job, Own: true, Change: true},
	pb.Jobs_Extend_FullMethodName:  {Role: state.Submitter, Job: job, Own: true, Change: true},
	pb.Jobs_Delete_FullMethodName:  {Role: state.Submitter, Job: job, Own: true, Change: true},
	pb.Jobs_Summary_FullMethodName: {Role: state.Viewer, Job: job, Nodes: []Node{Coordinator}},
	pb.Jobs_Result_FullMethodName:  {Role: state.Viewer, Job: job},
	pb.Jobs_Watch_FullMethodName:   {Role: state.Viewer, Job: job, Nodes: []Node{Coordinator}},
	pb.Jobs_Draws_FullMethodName:   {Role: state.Viewer, Job: job, Nodes: []Node{Coordinator}},
	pb.Jobs_Logs_FullMethodName:    {Role: state.Viewer, Job: job, Nodes: []Node{Coordinator}},

	pb.History_Run_FullMethodName:     {Role: state.Viewer, Job: job, Nodes: []Node{Coordinator}},
	pb.History_Workers_FullMethodName: {Role: state.Viewer},

	pb.Data_Stat_FullMethodName:     {Role: state.Viewer, Nodes: []Node{Coordinator, Worker}},
	pb.Data_Upload_FullMethodName:   {Role: state.Submitter, Nodes: []Node{Coordinator}, Change: true},
	pb.Data_Download_FullMethodName: {Role: state.Viewer, Nodes: []Node{Coordinator, Worker}},
	pb.Data_List_FullMethodName:     {Role: state.Viewer, Nodes: []Node{Coordinator}},

	pb.Workers_Connect_FullMethodName: {Nodes: []Node{Worker}},
	pb.Workers_Report_FullMethodName:  {Nodes: []Node{Worker}},
	pb.Workers_Await_FullMethodName:   {Nodes: []Node{Worker}},
	pb.Workers_Log_FullMethodName:     {Nodes: []Node{Worker, Coordinator}},
	pb.Workers_List_FullMethodName:    {Role: state.Viewer, Nodes: []Node{Worker}},
	pb.Workers_Drain_FullMethodName:   {Role: state.Admin, Whole: true, Change: true},

	pb.Tiles_Session_FullMethodName: {Nodes: []Node{Worker}},

	pb.Predictions_Predict_FullMethodName: {Role: state.Viewer, Job: job},
	pb.Posteriors_Compute_FullMethodName:  {Nodes: []Node{Coordinator}},

	pb.Records_Record_FullMethodName: {Nodes: []Node{Coordinator}},
	pb.Records_Forget_FullMethodName: {Nodes: []Node{Coordinator}},

	pb.Cluster_Members_FullMethodName:   {Role: state.Viewer},
	pb.Cluster_ReadIndex_FullMethodName: {Nodes: []Node{Coordinator}},
	pb.Cluster_Join_FullMethodName:      {Role: state.Admin, Whole: true, Nodes: []Node{Coordinator}, Change: true},
	pb.Cluster_Remove_FullMethodName:    {Role: state.Admin, Whole: true, Change: true},
	pb.Cluster_Promote_FullMethodName:   {Role: state.Admin, Whole: true, Change: true},
	pb.Cluster_Demote_FullMethodName:    {Role: state.Admin, Whole: true, Change: true},
	pb.Cluster_Transfer_FullMethodName:  {Role: state.Admin, Whole: true, Change: true},
	pb.Cluster_Backup_FullMethodName:    {Role: state.Admin, Whole: true, Change: true},
	pb.Cluster_Restore_FullMethodName:   {Role: state.Admin, Whole: true, Change: true},

	pb.Users_WhoAmI_FullMethodName:          {Role: state.Viewer},
	pb.Users_CreateToken_FullMethodName:     {Role: state.Admin, Change: true}, // for the caller's namespaces
	pb.Users_ListTokens_FullMethodName:      {Role: state.Admin},
	pb.Users_RevokeToken_FullMethodName:     {Role: state.Admin, Change: true},
	pb.Users_SetNamespace_FullMethodName:    {Role: state.Admin, Whole: true, Change: true},
	pb.Users_ListNamespaces_FullMethodName:  {Role: state.Viewer}, // the caller's
	pb.Users_DeleteNamespace_FullMethodName: {Role: state.Admin, Whole: true, Change: true},

	"/grpc.health.v1.Health/Check": {Public: true},
	"/grpc.health.v1.Health/List":  {Public: true},
	"/grpc.health.v1.Health/Watch": {Public: true},
	// What the services look like is no secret: it is in the source.
	"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      {Public: true},
	"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": {Public: true},
}
